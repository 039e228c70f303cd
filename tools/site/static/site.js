// Formulas: a bad one throws, so that it shows in the console and in the browser test.
if (location.search === "?questions") document.documentElement.classList.add("questions");  // on paper folds stay shut
document.addEventListener("DOMContentLoaded", () => {
  const sidebar = document.querySelector(".sphinxsidebarwrapper"), here = sidebar?.querySelector("a.current, .current > a");
  if (here) sidebar.scrollTop = here.offsetTop - sidebar.clientHeight / 2;  // a long list opens at the page at hand
  const contents = document.querySelector("nav.top .contents");
  contents.setAttribute("aria-expanded", "false");
  contents.addEventListener("click", (event) => {  // without this it leads to the foot of the page
    event.preventDefault();
    contents.setAttribute("aria-expanded", document.body.classList.toggle("menu"));
  });
  for (const node of document.querySelectorAll(".formula")) {
    katex.render(node.textContent, node, { displayMode: node.dataset.display === "true", throwOnError: true });
  }
});

// Formulas: a bad one throws, so that it shows in the console and in the browser test.
document.addEventListener("DOMContentLoaded", () => {
  const sidebar = document.querySelector(".sphinxsidebarwrapper"), here = sidebar?.querySelector("a.current, .current > a");
  if (here) sidebar.scrollTop = here.offsetTop - sidebar.clientHeight / 2;  // a long list opens at the page at hand
  for (const node of document.querySelectorAll(".formula")) {
    katex.render(node.textContent, node, { displayMode: node.dataset.display === "true", throwOnError: true });
  }
});

// Formulas: a bad one throws, so that it shows in the console and in the browser test.
document.addEventListener("DOMContentLoaded", () => {
  for (const node of document.querySelectorAll(".formula")) {
    katex.render(node.textContent, node, { displayMode: node.dataset.display === "true", throwOnError: true });
  }
});

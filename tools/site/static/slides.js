// A full slide gets smaller type, never under 15 px for words (tables 14). Keys go from slide to slide; a step forward
// first opens what is folded, so that a class predicts before it sees. slides.html?only=NAME keeps those of one rung.
const only = new URLSearchParams(location.search).get("only");
for (const slide of document.querySelectorAll(".slide")) {
  if (only && slide.dataset.rung !== only) slide.remove();
}
const slides = [...document.querySelectorAll(".slide")];
const full = (slide) => slide.scrollHeight > slide.clientHeight ||
  [...slide.querySelectorAll(".columns > div")].some((column) => column.scrollHeight > column.clientHeight + 1 || column.scrollWidth > column.clientWidth + 1);
for (const slide of slides) {
  for (let size = 22; size > 15 && full(slide); size -= .5) slide.style.setProperty("--size", `${size - .5}px`);
}
for (const fold of document.querySelectorAll("details")) fold.open = false;
// As large as the screen.
const fit = () => { document.documentElement.style.zoom = Math.min(innerWidth / 1280, innerHeight / 720); };
addEventListener("resize", fit);
fit();
const steps = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1, Home: -Infinity, End: Infinity };
addEventListener("keydown", (event) => {
  if (!(event.key in steps) || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  const here = slides.findIndex((slide) => slide.getBoundingClientRect().bottom > innerHeight / 2);
  const fold = slides[here].querySelector("details:not([open])");
  if (steps[event.key] === 1 && fold) {
    fold.open = true;
    return;
  }
  const next = Math.min(Math.max(here + steps[event.key], 0), slides.length - 1);
  slides[next].scrollIntoView();
  history.replaceState(null, "", `#${slides[next].id}`);
});

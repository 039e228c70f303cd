// Draws one view of the lab as SVG: bars for one shape, lines over N. It knows nothing of files or controls; each mark carries
// its figures as data attributes, so that a test, a screen reader and the tip read what was drawn.
"use strict";
{
  const NS = "http://www.w3.org/2000/svg";
  const TEXT = "12px system-ui, sans-serif";  // as .lab-chart text in lab.css
  const ROW = 16, LINE = 15;

  const svg = (tag, attributes, ...children) => {
    const element = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const path = (name, d) => svg("path", { class: name, d });
  const write = (name, x, y, anchor, words, data = {}) => {
    return svg("text", { class: name, x, y, "text-anchor": anchor, ...data }, words);
  };

  const pen = document.createElement("canvas").getContext("2d");
  const widthOf = (text) => {
    pen.font = TEXT;
    return pen.measureText(text).width;
  };
  const cutTo = (width, text) => {
    if (widthOf(text) <= width) return text;
    let kept = text;
    while (kept && widthOf(`${kept}\u2026`) > width) kept = kept.slice(0, -1);
    return `${kept}\u2026`;
  };

  const scale = (log, [low, high], [from, to]) => {
    const along = log ? Math.log : (value) => value;
    return (value) => from + ((to - from) * (along(value) - along(low))) / (along(high) - along(low));
  };

  const linearTicks = ([low, high], most) => {
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const first = Math.ceil(low / step), count = Math.floor(high / step + 1e-9) - first;
    return Array.from({ length: count + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  };

  const logTicks = ([low, high], most) => {
    if (high / low < 5) return linearTicks([low, high], most);
    const first = Math.floor(Math.log10(low)), count = Math.ceil(Math.log10(high)) - first + 1;
    const decades = Array.from({ length: count }, (_, i) => first + i);
    for (const factors of [[1, 2, 5], [1, 3], [1]]) {
      const ticks = decades.flatMap((power) => factors.map((factor) => Number(`${factor}e${power}`)))
        .filter((value) => value >= low && value <= high);
      if (ticks.length <= most) return ticks;
      const every = Math.ceil(ticks.length / most);
      if (factors.length === 1) return ticks.filter((_, i) => i % every === 0);
    }
  };
  const ticksOf = (log, domain, most) => (log ? logTicks : linearTicks)(domain, most);

  // What the axis must reach: every value with its interval.
  function domainOf(view, points) {
    const values = points.flatMap((point) => [point.value, point.low ?? point.value, point.high ?? point.value]);
    if (view.base !== undefined) values.push(view.base);
    const low = Math.min(...values), high = Math.max(...values);
    if (view.log) return [low / 1.15, high * 1.15];
    if (view.base === undefined && (view.form === "bars" || low < 0.4 * high || !high)) return [0, high * 1.04 || 1];
    return [Math.max(0, low - 0.05 * (high - low || 1)), high + 0.05 * (high - low || 1)];
  }

  // Texts one beside the other: each as near to where it belongs as those before it allow.
  function spread(wanted, gap, low, high) {
    const order = wanted.map((at, i) => [at, i]).sort(([a], [b]) => a - b);
    const at = [];
    let last = -Infinity;
    for (const [value, i] of order) last = at[i] = Math.max(value, last + gap, low);
    let limit = high;
    for (const [, i] of order.reverse()) limit = (at[i] = Math.min(at[i], limit)) - gap;
    return at;
  }

  const SHAPES = [
    (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
    (r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
    (r) => `M0 ${-1.2 * r}L${1.2 * r} ${r}H${-1.2 * r}z`,
    (r) => `M0 ${-1.4 * r}L${1.4 * r} 0L0 ${1.4 * r}L${-1.4 * r} 0z`,
    (r) => `M0 ${1.2 * r}L${1.2 * r} ${-r}H${-1.2 * r}z`,
    (r) => `M${-r} ${-r}L${r} ${r}M${-r} ${r}L${r} ${-r}`,
    (r) => `M0 ${-1.3 * r}V${1.3 * r}M${-1.3 * r} 0H${1.3 * r}`,
  ];
  const dot = (shape, r, x, y) => {
    return svg("path", { class: "dot", d: SHAPES[shape % SHAPES.length](r), transform: `translate(${x} ${y})` });
  };

  const styled = (element, series) => {
    element.style.setProperty("--t", series.tone);
    element.classList.add(`machine-${series.machine % 4}`);
    return element;
  };

  // `at` is where the tip points and what the mouse must come near.
  function mark(series, point, at, ...shapes) {
    const element = svg("g", { class: `mark ${series.kind}`, role: "img", tabindex: -1, "aria-label": point.text }, ...shapes);
    Object.assign(element.dataset, { stage: series.stage, kind: series.kind, gpu: series.gpu, n: point.n, value: point.value });
    if (point.low !== undefined) Object.assign(element.dataset, { low: point.low, high: point.high });
    return styled(Object.assign(element, { at }), series);
  }

  function whisker(point, horizontal, along, across) {
    if (point.low === undefined) return [];
    const low = along(point.low), high = along(point.high);
    return [path("whisker", horizontal ? `M${low} ${across - 4}v8M${low} ${across}H${high}M${high} ${across - 4}v8`
      : `M${across - 4} ${low}h8M${across} ${low}V${high}M${across - 4} ${high}h8`)];
  }

  // Lines across the bars, each with its name and value on top, in as many rows as keep the names apart.
  function headsOf(view, lines, x, width) {
    const heads = lines.map((series) => {
      const [point] = series.points;
      return { series, point, value: point.value, words: `${series.label} ${view.write(point.value)}` };
    });
    if (view.base !== undefined) heads.push({ value: view.base, words: view.baseName });
    const ends = [];
    for (const head of heads.sort((a, b) => a.value - b.value)) {
      const half = widthOf(head.words) / 2;
      head.x = Math.min(Math.max(x(head.value), half), width - half);
      head.row = ends.findIndex((end) => head.x - half > end + 8);
      if (head.row < 0) head.row = ends.length;
      ends[head.row] = head.x + half;
    }
    return [heads, ends.length];
  }

  // One row for each bar, downwards as the ladder climbs; other implementations and ceilings are lines across.
  function bars(view, width) {
    const rows = view.series.filter((series) => !series.across), lines = view.series.filter((series) => series.across);
    // Where the names would take too much of the width they stand above their bars.
    const names = Math.max(30, ...rows.map((series) => widthOf(series.label))) + 10, above = names > 0.3 * width;
    // As many rungs as there are should be seen at once, while their names can be read.
    const bar = above ? ROW : Math.max(11, Math.min(ROW, 470 / rows.length));
    const left = above ? 14 : names, pitch = above ? ROW + LINE : bar;
    const right = width - 24 - Math.max(0, ...rows.map((series) => widthOf(view.write(series.points[0].value))));
    const domain = domainOf(view, view.series.map((series) => series.points[0])), x = scale(view.log, domain, [left, right]);
    const [heads, headRows] = headsOf(view, lines, x, width);
    const titles = widthOf(view.title) > width ? view.title.split(": ") : [view.title];  // the names of counters are long
    const top = headRows * LINE + 8, bottom = top + rows.length * pitch + 6, height = bottom + 25 + titles.length * LINE;
    const root = [], values = [];
    for (const value of ticksOf(view.log, domain, Math.max(3, (width - left) / 60))) {
      const at = x(value);
      root.push(path("grid", `M${at} ${top - 4}V${bottom}`));
      root.push(write("tick", at, bottom + 16, "middle", view.writeTick(value), { "data-tick": value, "data-at": at }));
    }
    titles.forEach((words, i) => {
      const half = widthOf(words) / 2, middle = Math.max(half, Math.min((left + right) / 2, width - half));
      root.push(write("title", middle, bottom + 34 + i * LINE, "middle", words));
    });
    rows.forEach((series, i) => {
      const [point] = series.points, y = top + (i + 1) * pitch - 0.5 * bar;
      const from = x(view.base ?? domain[0]), to = x(point.value);
      // On a logarithmic axis the length of a bar says nothing, but from a base on it does.
      const shape = view.log && view.base === undefined ? dot(0, 5, to, y) : svg("rect", {
        class: "bar", x: Math.min(from, to), width: Math.abs(to - from), y: y - 0.36 * bar, height: 0.72 * bar,
      });
      root.push(mark(series, point, { x: to, y }, shape, ...whisker(point, true, x, y)));
      values.push(above ? write("name", left, y - 13, "start", series.label) : write("name", left - 6, y + 4, "end", series.label),
        write("value", Math.max(x(point.high ?? point.value), from) + 7, y + 4, "start", view.write(point.value)));
    });
    for (const { series, point, value, x: at, row, words } of heads) {
      const y = (row + 1) * LINE - 3, place = { x: x(value), y: top, across: true };
      const shapes = [path("reference", `M${place.x} ${y + 4}V${bottom}`), write("value", at, y, "middle", words)];
      root.push(series ? mark(series, point, place, ...shapes) : svg("g", { class: "base" }, ...shapes));
    }
    root.push(...values);  // above the lines
    const near = ({ at }, toX, toY) => (!at.across ? Math.abs(toY - at.y) : toY < top ? Math.abs(toX - at.x) : Infinity);
    return { root, height, near };
  }

  // One line for each contestant, named at its end.
  function lines(view, width) {
    const narrow = width < 560, name = (series) => (narrow ? series.short : series.label);
    const names = Math.max(30, ...view.series.map((series) => widthOf(name(series)))) + 26;
    const height = Math.max(380, 60 + LINE * view.series.length), bottom = height - 44;
    const points = view.series.flatMap((series) => series.points), domain = domainOf(view, points), top = 14;
    const ticks = ticksOf(view.log, domain, 7), right = width - Math.min(names, 0.5 * width);
    const left = Math.max(0, ...ticks.map((value) => widthOf(view.writeTick(value)))) + 28;
    const lengths = [...new Set(points.map((point) => point.n))].sort((a, b) => a - b), [first] = lengths;
    const x = scale(view.logN, lengths.length > 1 ? [first, lengths.at(-1)] : [first / 2, first * 2], [left + 12, right]);
    const y = scale(view.log, domain, [bottom, top]);
    const root = [];
    for (const value of ticks) {
      const at = y(value);
      root.push(path("grid", `M${left} ${at}H${right + 8}`));
      root.push(write("tick", left - 6, at + 4, "end", view.writeTick(value), { "data-tick": value, "data-at": at }));
    }
    let free = -Infinity;
    for (const n of lengths) {
      const at = x(n), half = widthOf(n) / 2;
      root.push(path("grid", `M${at} ${bottom}v5`));
      if (at - half < free) continue;
      free = at + half + 8;
      root.push(write("tick", at, bottom + 18, "middle", n, { "data-n": n, "data-at": at }));
    }
    root.push(write("title", (left + right) / 2, height - 6, "middle", "sequence length N"));
    const middle = Math.max((top + bottom) / 2, widthOf(view.title) / 2);
    root.push(write("title", 0, 0, "middle", view.title, { transform: `translate(12 ${middle}) rotate(-90)` }));
    if (view.base !== undefined) root.push(path("base reference", `M${left} ${y(view.base)}H${right + 8}`));
    const labels = spread(view.series.map((series) => y(series.points.at(-1).value)), LINE - 1, top, bottom);
    view.series.forEach((series, i) => {
      const last = series.points.at(-1);
      root.push(styled(svg("g", { class: `series ${series.kind}` },
        path("line", series.points.map((point) => `${point.apart ? "M" : "L"}${x(point.n)} ${y(point.value)}`).join("")),
        path("leader", `M${x(last.n) + 5} ${y(last.value)}L${right + 16} ${labels[i]}`),
        write("name", right + 19, labels[i] + 4, "start", cutTo(width - right - 19, name(series))),
        ...series.points.map((point) => {
          const at = { x: x(point.n), y: y(point.value) };
          return mark(series, point, at, ...whisker(point, false, y, at.x), dot(series.shape, 4, at.x, at.y));
        })), series));
    });
    const near = ({ at }, toX, toY) => {
      const distance = Math.hypot(toX - at.x, toY - at.y);
      return distance < 40 ? distance : Infinity;
    };
    return { root, height, near };
  }

  // Fills `element`, an svg, `width` pixels wide. view: { form: "bars" | "lines", title, log, logN, base, baseName, write,
  // writeTick, series: [{ stage, kind, gpu, machine, label, short, tone, shape, across, points }] }, as lab.seriesOf makes them.
  // Returns what finds the mark nearest to a place: near(x, y), a mark or undefined.
  lab.draw = (element, view, width) => {
    const { root, height, near } = (view.form === "bars" ? bars : lines)(view, width);
    const size = { viewBox: `0 0 ${width} ${height}`, width, height };
    for (const [name, value] of Object.entries(size)) element.setAttribute(name, value);
    element.replaceChildren(...root);
    const marks = [...element.querySelectorAll(".mark")];
    return (x, y) => {
      const [found] = marks.map((mark) => [near(mark, x, y), mark]).sort(([a], [b]) => a - b);
      return found && found[0] < Infinity ? found[1] : undefined;
    };
  };
}

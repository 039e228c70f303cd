// Draws one view of the lab as SVG: bars for one shape, lines over N. It knows nothing of files or controls; each mark carries
// its figures as data attributes, so that a test, a screen reader and the tip read what was drawn.
"use strict";
{
  const NS = "http://www.w3.org/2000/svg";
  const TEXT = "12px system-ui, sans-serif";  // as .lab-chart text in lab.css
  const ROW = 24, LINE = 15;

  const svg = (tag, attributes, ...children) => {
    const element = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  const pen = document.createElement("canvas").getContext("2d");
  const widthOf = (text) => {
    pen.font = TEXT;
    return pen.measureText(text).width;
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
    const first = Math.floor(Math.log10(low)), decades = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, i) => first + i);
    const every = Math.ceil(decades.length / most);
    for (const factors of [[1, 2, 5], [1, 3], [1]]) {
      const ticks = decades.filter((power) => factors.length > 1 || power % every === 0)
        .flatMap((power) => factors.map((factor) => Number(`${factor}e${power}`))).filter((value) => value >= low && value <= high);
      if (ticks.length <= most || factors.length === 1) return ticks;
    }
  };
  const ticksOf = (log, domain, most) => (log ? logTicks : linearTicks)(domain, most);

  // What the axis must reach: every value with its interval.
  function domainOf(view, points) {
    const values = points.flatMap((point) => [point.value, point.low ?? point.value, point.high ?? point.value]);
    if (view.base !== undefined) values.push(view.base);
    const low = Math.min(...values), high = Math.max(...values);
    if (view.log) return [low / 1.15, high * 1.15];
    if (view.base === undefined && (view.form === "bars" || low < 0.4 * high)) return [0, high * 1.04];
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

  function mark(series, point, at, ...shapes) {
    const data = { stage: series.stage, kind: series.kind, gpu: series.gpu, n: point.n, value: point.value };
    if (point.low !== undefined) Object.assign(data, { low: point.low, high: point.high });
    const element = svg("g", { class: `mark ${series.kind}`, role: "img", tabindex: -1, "aria-label": point.text }, ...shapes);
    Object.assign(element.dataset, data);
    element.at = at;
    return element;
  }

  const styled = (element, series) => {
    element.style.setProperty("--t", series.tone);
    element.classList.add(`machine-${series.machine % 4}`);
    return element;
  };

  const whisker = (point, horizontal, along, across) => {
    if (point.low === undefined) return [];
    const [a, b] = [along(point.low), along(point.high)];
    const d = horizontal ? `M${a} ${across - 4}v8M${a} ${across}H${b}M${b} ${across - 4}v8`
      : `M${across - 4} ${a}h8M${across} ${a}V${b}M${across - 4} ${b}h8`;
    return [svg("path", { class: "whisker", d })];
  };

  // One row for each bar, downwards as the ladder climbs; other implementations and ceilings are lines across.
  function bars(view, width) {
    const rows = view.series.filter((series) => !series.across), lines = view.series.filter((series) => series.across);
    // Where the names would take too much of the width they stand above their bars.
    const names = Math.max(30, ...rows.map((series) => widthOf(series.label))) + 10, above = names > 0.4 * width;
    const left = above ? 14 : names, right = 14, pitch = above ? ROW + LINE : ROW;
    const end = Math.max(...rows.map((series) => widthOf(view.write(series.points[0].value))), 0) + 10;
    const domain = domainOf(view, view.series.map((series) => series.points[0]));
    const x = scale(view.log, domain, [left, width - right - end]);
    // Labels of the lines in as many rows as keep them apart.
    const heads = [...lines.map((series) => ({ series, value: series.points[0].value, text: `${series.label} ${view.write(series.points[0].value)}` })),
      ...(view.base === undefined ? [] : [{ value: view.base, text: view.baseName }])].sort((a, b) => a.value - b.value);
    const ends = [];
    for (const head of heads) {
      const half = widthOf(head.text) / 2;
      head.x = Math.min(Math.max(x(head.value), half), width - half);
      head.row = ends.findIndex((last) => head.x - half > last + 8);
      if (head.row < 0) head.row = ends.length;
      ends[head.row] = head.x + half;
    }
    const top = ends.length * LINE + 8, bottom = top + rows.length * pitch + 6, height = bottom + 40;
    const root = [];
    for (const value of ticksOf(view.log, domain, Math.max(3, (width - left) / 60))) {
      root.push(svg("path", { class: "grid", d: `M${x(value)} ${top - 4}V${bottom}` }),
        svg("text", { class: "tick", x: x(value), y: bottom + 16, "text-anchor": "middle", "data-tick": value, "data-at": x(value) }, view.writeTick(value)));
    }
    root.push(svg("text", { class: "title", x: (left + width - right) / 2, y: bottom + 34, "text-anchor": "middle" }, view.title));
    const values = [];  // above the lines
    rows.forEach((series, i) => {
      const [point] = series.points, y = top + (i + 1) * pitch - 0.5 * ROW, from = x(view.base ?? domain[0]), to = x(point.value);
      const text = view.write(point.value);
      const shapes = view.log && view.base === undefined ? [svg("path", { class: "dot", d: SHAPES[0](5), transform: `translate(${to} ${y})` })]
        : [svg("rect", { class: "bar", x: Math.min(from, to), width: Math.abs(to - from), y: y - 0.36 * ROW, height: 0.72 * ROW })];
      const name = svg("text", above ? { class: "name", x: left, y: y - 13 } : { class: "name", x: left - 6, y: y + 4, "text-anchor": "end" }, series.label);
      root.push(styled(mark(series, point, { x: to, y }, ...shapes, ...whisker(point, true, x, y)), series));
      values.push(name, svg("text", { class: "value", x: Math.max(x(point.high ?? point.value), from) + 7, y: y + 4 }, text));
    });
    for (const { series, value, x: at, row, text } of heads) {
      const y = (row + 1) * LINE - 3, line = svg("path", { class: "reference", d: `M${x(value)} ${y + 4}V${bottom}` });
      const label = svg("text", { class: "value", x: at, y, "text-anchor": "middle" }, text);
      if (series) root.push(styled(mark(series, series.points[0], { x: x(value), y: top }, line, label), series));
      else root.push(svg("g", { class: "base" }, line, label));
    }
    root.push(...values);
    return { root, height, near: (mark, x, y) => (mark.classList.contains("stage") ? Math.abs(y - mark.at.y) : y < top ? Math.abs(x - mark.at.x) : Infinity) };
  }

  // One line for each contestant, named at its end.
  function lines(view, width) {
    const narrow = width < 560, name = (series) => (narrow ? series.short : series.label);
    const left = 58, top = 14, right = Math.min(Math.max(30, ...view.series.map((series) => widthOf(name(series)))) + 26, 0.5 * width);
    const height = Math.max(380, 60 + LINE * view.series.length), bottom = height - 44;
    const points = view.series.flatMap((series) => series.points), domain = domainOf(view, points);
    const lengths = [...new Set(points.map((point) => point.n))].sort((a, b) => a - b);
    const x = scale(view.logN, lengths.length > 1 ? [lengths[0], lengths.at(-1)] : [lengths[0] / 2, lengths[0] * 2], [left + 12, width - right]);
    const y = scale(view.log, domain, [bottom, top]);
    const root = [];
    for (const value of ticksOf(view.log, domain, 7)) {
      root.push(svg("path", { class: "grid", d: `M${left} ${y(value)}H${width - right + 8}` }),
        svg("text", { class: "tick", x: left - 6, y: y(value) + 4, "text-anchor": "end", "data-tick": value, "data-at": y(value) }, view.writeTick(value)));
    }
    let free = -Infinity;
    for (const n of lengths) {
      const half = widthOf(n) / 2;
      root.push(svg("path", { class: "grid", d: `M${x(n)} ${bottom}v5` }));
      if (x(n) - half < free) continue;
      free = x(n) + half + 8;
      root.push(svg("text", { class: "tick", x: x(n), y: bottom + 18, "text-anchor": "middle", "data-n": n, "data-at": x(n) }, n));
    }
    root.push(svg("text", { class: "title", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, "sequence length N"));
    root.push(svg("text", { class: "title", x: left, y: 0, transform: `rotate(-90) translate(${-left - (top + bottom) / 2} 12)`, "text-anchor": "middle" }, view.title));
    if (view.base !== undefined) root.push(svg("path", { class: "base reference", d: `M${left} ${y(view.base)}H${width - right + 8}` }));
    const at = spread(view.series.map((series) => y(series.points.at(-1).value)), LINE - 1, top, bottom);
    view.series.forEach((series, i) => {
      const last = series.points.at(-1), path = series.points.map((point) => `${x(point.n)} ${y(point.value)}`).join("L");
      const group = styled(svg("g", { class: `series ${series.kind}` }), series);
      group.append(svg("path", { class: "line", d: `M${path}` }),
        svg("path", { class: "leader", d: `M${x(last.n) + 5} ${y(last.value)}L${width - right + 16} ${at[i]}` }),
        svg("text", { class: "name", x: width - right + 19, y: at[i] + 4 }, name(series)));
      for (const point of series.points) {
        group.append(mark(series, point, { x: x(point.n), y: y(point.value) }, ...whisker(point, false, y, x(point.n)),
          svg("path", { class: "dot", d: SHAPES[series.shape % SHAPES.length](4), transform: `translate(${x(point.n)} ${y(point.value)})` })));
      }
      root.push(group);
    });
    return { root, height, near: (mark, x, y) => { const d = Math.hypot(x - mark.at.x, y - mark.at.y); return d < 40 ? d : Infinity; } };
  }

  // Fills `element`, an svg, `width` pixels wide. view: { form: "bars" | "lines", title, log, logN, base, baseName, write, writeTick,
  // series: [{ stage, kind, gpu, machine, label, short, tone, shape, across, points: [{ n, value, low, high, text }] }] }.
  // Returns the mark nearest to a place: near(x, y), or undefined.
  lab.draw = (element, view, width) => {
    const drawn = (view.form === "bars" ? bars : lines)(view, width);
    element.setAttribute("viewBox", `0 0 ${width} ${drawn.height}`);
    element.setAttribute("width", width);
    element.setAttribute("height", drawn.height);
    element.replaceChildren(...drawn.root);
    const marks = [...element.querySelectorAll(".mark")];
    return (x, y) => {
      const found = marks.map((mark) => [drawn.near(mark, x, y), mark]).sort(([a], [b]) => a - b)[0];
      return found && found[0] < Infinity ? found[1] : undefined;
    };
  };
}

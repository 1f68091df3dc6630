// What was open, opened, closed and lost: charts of one time axis, drawn as SVG, with the figures as a table.
//
// A chart is a slider over its steps: arrows move the mark in all charts, and what it says is read out.

import { element, number, shape, span } from "./elements.js";

/** The room that a chart has around its field, and its height, in px. */
const LEFT = 52;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 24;
const HEIGHT = 190;
/** The height of the strip below the field that marks steps that are not complete. */
const STRIP = 5;
/** The width that a label of the time axis needs, in px. */
const LABEL_WIDTH = 84;

/** What each chart shows: its name, what it counts, its series from the bottom of the drawing up. */
const CHARTS = [
  { name: "Open", unit: "established", series: [{ field: "open", name: "open", kind: "area", class: "open" }] },
  {
    name: "Opened and closed",
    unit: "in a step",
    series: [
      { field: "opened", name: "opened", kind: "bars", class: "opened", sign: 1 },
      { field: "closed", name: "closed", kind: "bars", class: "closed", sign: -1 },
    ],
  },
  { name: "Half-open", unit: "without a complete handshake", series: [{ field: "half_open", name: "half-open", kind: "area", class: "half" }] },
  {
    name: "Loss",
    unit: "none where lists are complete",
    isApart: true,
    series: [
      { field: "missing", name: "connections missing", kind: "bars", class: "missing", sign: 1 },
      { field: "dropped", name: "packets lost", kind: "bars", class: "dropped", sign: -1 },
    ],
  },
];

/** A round number that is no smaller: 1, 2, 2.5 or 5 times a power of ten. */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 2, 2.5, 5, 10].find((one) => one * power >= value * (1 - 1e-9));
  return Math.max(1, factor * power);
}

/** A number as the axis has it: 12k, 3.5M. */
function short(value) {
  const size = Math.abs(value);
  const [unit, by] = size >= 1e9 ? ["G", 1e9] : size >= 1e6 ? ["M", 1e6] : size >= 1e4 ? ["k", 1e3] : ["", 1];
  return `${Number((size / by).toPrecision(3))}${unit}`;
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 31536000];

/** The times that the axis names, in seconds, as round as they fit. */
function timesBetween(from, to, width) {
  const most = Math.max(1, Math.floor(width / LABEL_WIDTH));
  const step = TIME_STEPS.find((one) => (to - from) / one <= most) ?? TIME_STEPS.at(-1);
  const times = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) times.push(time);
  return { times, step };
}

/** A time of day, or a day where steps are of days. */
function timeText(time, step) {
  const text = new Date(time * 1000).toISOString();
  return step >= 86400 ? text.slice(0, 10) : step >= 60 ? text.slice(11, 16) : text.slice(11, 19);
}

/** A point with its end in seconds. */
function withTimes(points) {
  return points.map((point) => ({ ...point, at: Date.parse(point.end) / 1000 }));
}

/** What a step says, in words. */
function words(chart, point) {
  const figures = chart.series.map(({ field, name }) => `${number(point[field])} ${name}`).join(", ");
  return `${figures}${point.complete ? "" : ", not complete"}`;
}

function stamp(text) {
  return `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
}

/** The scale of a chart: the values that it names, and where it has a value. What goes down has a scale of its own
 * where it is counted in something else. */
function scale(chart, points, top, bottom) {
  const most = (sign) => Math.max(0, ...chart.series.filter((one) => (one.sign ?? 1) === sign).flatMap(({ field }) => points.map((point) => point[field])));
  const hasDown = chart.series.some(({ sign }) => sign < 0);
  const [up, down] = chart.isApart ? [most(1), most(-1)] : Array(2).fill(Math.max(most(1), most(-1)));
  const units = [roundUp(up / 2), roundUp(down / 2)];
  const middle = hasDown ? (top + bottom) / 2 : bottom;
  const y = (value) => middle - (value * (middle - top)) / (2 * units[value < 0 ? 1 : 0]);
  const values = [0, units[0], 2 * units[0], ...(hasDown ? [-units[1], -2 * units[1]] : [])];
  return { values, y };
}

/** The drawing of a chart, this wide. */
function drawing(chart, { points, step }, width) {
  const right = width - RIGHT;
  const bottom = HEIGHT - BOTTOM - STRIP;
  const [from, to] = [points[0].at - step, points.at(-1).at];
  const x = (time) => LEFT + ((time - from) / (to - from)) * (right - LEFT);
  const { values, y } = scale(chart, points, TOP, bottom);
  const parts = [];
  for (const value of values) {
    parts.push(shape("line", { class: value === 0 ? "zero" : "grid", x1: LEFT, x2: right, y1: y(value), y2: y(value) }));
    parts.push(shape("text", { class: "axis", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  }
  const labels = timesBetween(from, to, right - LEFT);
  for (const time of labels.times) {
    parts.push(shape("line", { class: "tick", x1: x(time), x2: x(time), y1: bottom, y2: bottom + STRIP + 3 }));
    const anchor = x(time) > right - 24 ? "end" : x(time) < LEFT + 24 ? "start" : "middle";
    parts.push(shape("text", { class: "axis", x: x(time), y: HEIGHT - 5, "text-anchor": anchor }, timeText(time, labels.step)));
  }
  for (const series of chart.series) parts.push(...(series.kind === "area" ? area : bars)(series, points, step, x, y));
  for (const [first, last] of runs(points.filter((point) => !point.complete), step)) {
    parts.push(shape("rect", { class: "incomplete", x: x(first.at - step), y: bottom, width: Math.max(1, x(last.at) - x(first.at - step)), height: STRIP }));
  }
  parts.push(shape("line", { class: "cursor", y1: TOP, y2: bottom + STRIP }));
  const svg = shape("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" }, ...parts);
  return { svg, x, places: points.map((point) => x(point.at - step / 2)) };
}

/** Points that follow each other without a gap, as the first and the last of each run. */
function runs(points, step) {
  const found = [];
  for (const point of points) {
    const run = found.at(-1);
    if (run && point.at - run[1].at <= step * 1.01) run[1] = point;
    else found.push([point, point]);
  }
  return found;
}

/** A line with its area, by steps: a list says what was open at its end. Where no list is there is a gap. */
function area({ field, class: name }, points, step, x, y) {
  const parts = [];
  for (const [first, last] of runs(points, step)) {
    const run = points.filter((point) => point.at >= first.at && point.at <= last.at);
    const top = run.map((point) => `${x(point.at - step).toFixed(1)},${y(point[field]).toFixed(1)}L${x(point.at).toFixed(1)},${y(point[field]).toFixed(1)}`).join("L");
    const [begin, end] = [x(first.at - step).toFixed(1), x(last.at).toFixed(1)];
    parts.push(shape("path", { class: `fill ${name}`, d: `M${begin},${y(0)}L${top}L${end},${y(0)}Z` }));
    parts.push(shape("path", { class: `stroke ${name}`, d: `M${top}` }));
  }
  return parts;
}

function bars({ field, class: name, sign }, points, step, x, y) {
  const wide = x(step) - x(0);
  const room = wide > 4 ? 1 : 0;
  const path = points
    .filter((point) => point[field] > 0)
    .map((point) => {
      const [left, end] = [x(point.at - step) + room / 2, y(sign * point[field])];
      // What is there is seen, however little it is.
      const tip = sign > 0 ? Math.min(end, y(0) - 1.5) : Math.max(end, y(0) + 1.5);
      return `M${left.toFixed(1)},${y(0).toFixed(1)}V${tip.toFixed(1)}h${Math.max(1, wide - room).toFixed(1)}V${y(0).toFixed(1)}Z`;
    });
  return [shape("path", { class: `fill bars ${name}`, d: path.join("") || "M0,0" })];
}

/** All charts of a course, and its table. */
export function charts(course) {
  const points = withTimes(course.points);
  const made = CHARTS.map((chart) => figure(chart, { points, step: course.step }, (place) => made.forEach((one) => one.mark(place))));
  const last = points.length - 1;
  const watcher = new ResizeObserver(() => made.forEach((one) => one.draw()));
  const grid = element("div", { class: "charts" }, ...made.map((one) => one.element));
  watcher.observe(grid);
  made.forEach((one) => one.mark(last));
  return [grid, table(course, points)];
}

function figure(chart, { points, step }, onMark) {
  const id = `chart-${chart.series[0].field}`;
  const readout = element("output", { class: "readout" });
  const keys = chart.series.map((series) => [series.class, series.name]);
  if (points.some((point) => !point.complete)) keys.push(["incomplete", "list not complete"]);
  const legend = keys.map(([name, text]) => element("span", { class: `key ${name}`, text }));
  const caption = element("figcaption", {}, element("strong", { id, text: chart.name }), element("span", { class: "unit", text: chart.unit }), readout);
  const field = element("div", {
    class: "field", role: "slider", tabindex: "0", "aria-labelledby": id, "aria-valuemin": "0", "aria-valuemax": String(points.length - 1),
  });
  const made = element("figure", { class: "chart" }, caption, field, element("div", { class: "legend" }, ...legend));
  let place = points.length - 1;
  let drawn = null;
  let width = 0;

  const mark = (to) => {
    place = Math.max(0, Math.min(to, points.length - 1));
    const point = points[place];
    field.setAttribute("aria-valuenow", String(place));
    field.setAttribute("aria-valuetext", `${stamp(point.end)}: ${words(chart, point)}`);
    readout.replaceChildren(
      ...chart.series.map(({ field: name, class: kind }) => element("b", { class: kind, text: number(point[name]) })),
      element("time", { text: stamp(point.end).slice(11) }),
    );
    const cursor = drawn?.svg.querySelector(".cursor");
    cursor?.setAttribute("x1", drawn.places[place]);
    cursor?.setAttribute("x2", drawn.places[place]);
  };
  const draw = () => {
    if (field.clientWidth === width || field.clientWidth === 0) return;
    width = field.clientWidth;
    drawn = drawing(chart, { points, step }, width);
    field.replaceChildren(drawn.svg);
    mark(place);
  };
  field.addEventListener("pointermove", (event) => {
    if (!drawn) return;
    const at = event.clientX - field.getBoundingClientRect().left;
    const distances = drawn.places.map((one) => Math.abs(one - at));
    onMark(distances.indexOf(Math.min(...distances)));
  });
  field.addEventListener("pointerleave", () => onMark(points.length - 1));
  field.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.round(points.length / 10));
    const to = { ArrowLeft: place - 1, ArrowDown: place - 1, ArrowRight: place + 1, ArrowUp: place + 1, PageDown: place - page, PageUp: place + page, Home: 0, End: points.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    onMark(to);
  });
  return { element: made, draw, mark };
}

/** The figures of all charts, for who does not see them, or wants them exactly. */
function table(course, points) {
  const columns = [["Step ends", (point) => stamp(point.end)], ...CHARTS.flatMap(({ series }) => series.map(({ field, name }) => [name, (point) => number(point[field])])), ["complete", (point) => (point.complete ? "yes" : "no")], ["routers", (point) => `${point.routers} of ${course.routers}`]];
  const details = element("details", { class: "figures" }, element("summary", { text: `The figures, in steps of ${span(course.step)}` }));
  // Made when it is wanted: a table of hundreds of lines is much of a page.
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const head = element("tr", {}, ...columns.map(([name]) => element("th", { scope: "col" }, element("span", { text: name }))));
    const lines = points.toReversed().map((point) => element("tr", {}, ...columns.map(([, show]) => element("td", { text: show(point) }))));
    details.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The figures" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines))));
  });
  return details;
}

// Connections on a time line: bars on one axis, each beside the words that say the same.

import { element, shape, span, state } from "./elements.js";

/** The least width of a bar, in hundredths of its line. */
const WIDTH_MIN = 0.6;

const seconds = (text) => Date.parse(text) / 1000;

/** How connections end, in words. */
const ENDINGS = { fin: "closed", rst: "reset", timeout: "timed out", evicted: "too old", replaced: "replaced", reopened: "went on" };

/** How a connection of an archive ended, or that it had not. */
export function ending({ flow }) {
  const name = flow.reason ?? "open";
  return element("span", { class: `ending ${Object.hasOwn(ENDINGS, name) || name === "open" ? name : ""}`, text: ENDINGS[name] ?? name });
}

/** A time to the second. */
export function stamp(text) {
  return `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

/** When a connection of an archive was there, in seconds: until its end, or until when it was known to be open. */
export function times(row) {
  return { from: seconds(row.flow.start), to: Math.max(seconds(row.flow.start), seconds(row.flow.end ?? row.timestamp)) };
}

/** The time that these connections take. */
export function axisOf(rows) {
  const all = rows.map(times);
  return { from: Math.min(...all.map((one) => one.from)), to: Math.max(...all.map((one) => one.to)) };
}

/** A bar on a line that takes all of an axis. */
export function bar({ from, to }, axis, name) {
  const all = Math.max(axis.to - axis.from, 0.001);
  const width = Math.max(WIDTH_MIN, ((to - from) / all) * 100);
  const x = Math.min(((from - axis.from) / all) * 100, 100 - width);
  return shape("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    shape("rect", { class: "rail", x: 0, y: 4.5, width: 100, height: 1 }),
    shape("rect", { class: `span ${name}`, x, y: 1, width, height: 8 }));
}

/** What the lists have of a connection: a line for each router, and the same in words. */
export function life(answer, row) {
  const seen = answer.routers.filter((router) => router.stages.length > 0);
  if (seen.length === 0) return [element("p", { class: "note", text: "No list that is kept has it: it was shorter than an interval, or its lists are gone." })];
  const stages = seen.flatMap((router) => router.stages);
  const start = Math.min(...stages.map((stage) => seconds(stage.start)));
  const first = answer.searched_since ? seconds(answer.searched_since) : start;
  const end = row?.flow.end ? seconds(row.flow.end) : Math.max(...stages.map((stage) => seconds(stage.until)));
  // What was before all lists that are kept would leave no place for what they say.
  const isOlder = first - start > 4 * (end - first);
  const axis = { from: isOlder ? first : start, to: Math.max(end, ...stages.map((stage) => seconds(stage.until))) };
  const lines = seen.map((router) => element("li", {}, element("span", { class: "who", text: router.name }), track(router, axis), ...says(router)));
  const begins = isOlder ? `${stamp(new Date(axis.from * 1000).toISOString())} (started earlier)` : stamp(new Date(axis.from * 1000).toISOString());
  const scale = element("div", { class: "scale" }, element("span", { text: begins }), element("span", { text: stamp(new Date(axis.to * 1000).toISOString()) }));
  const others = answer.routers.filter((router) => router.stages.length === 0).map((router) => router.name);
  const some = others.slice(0, 6).join(", ") + (others.length > 6 ? ` and ${others.length - 6} more` : "");
  const notes = others.length > 0 ? [`Not in the lists of ${some}.`] : [];
  if (!answer.complete) notes.push(answer.problems[0] ?? `Looked at ${answer.lists} lists, back to ${answer.searched_since ? stamp(answer.searched_since) : "none"}.`);
  return [element("ol", { class: "life" }, ...lines), scale, ...notes.map((text) => element("p", { class: "note", text }))];
}

/** The stages that a router has, on one line. */
function track(router, axis) {
  const all = Math.max(axis.to - axis.from, 0.001);
  const at = (time) => Math.max(0, Math.min(100, ((time - axis.from) / all) * 100));
  const parts = [shape("rect", { class: "rail", x: 0, y: 4.5, width: 100, height: 1 })];
  router.stages.forEach((stage, place) => {
    // The first list that has it comes after its start; a stage lasts until the next.
    const isNext = place > 0 && router.stages[place - 1].start === stage.start;
    const from = isNext ? seconds(router.stages[place - 1].until) : seconds(stage.start);
    const x = Math.min(at(from), 100 - WIDTH_MIN);
    parts.push(shape("rect", { class: `span ${stage.state}`, x, y: stage.state === "established" ? 1 : 3, width: Math.max(WIDTH_MIN, at(seconds(stage.until)) - x), height: stage.state === "established" ? 8 : 4 }));
  });
  return shape("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts);
}

/** The last stages in words. */
function says(router) {
  return router.stages.slice(-4).map((stage) => {
    const lasted = seconds(stage.until) - seconds(stage.since);
    const until = lasted > 0 ? ` – ${stage.until.slice(11, 19)}` : "";
    return element("span", { class: "stage" }, state(stage.state), element("span", { class: "quiet", text: ` ${stage.since.slice(11, 19)}${until}, ${stage.lists} ${stage.lists === 1 ? "list" : "lists"}` }));
  });
}

/** Earlier connections between the same ends, as an archive has them. */
export function earlier(rows) {
  const items = rows.map((row) => element("li", {}, ending(row), element("span", { class: "quiet", text: ` ${stamp(row.flow.start)}, ${span(row.flow.age)}, ${row.router}` })));
  return element("ol", { class: "earlier" }, ...items);
}

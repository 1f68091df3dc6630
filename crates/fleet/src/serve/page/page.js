// The page: what is asked for stands in the address, what is shown is what the server answered to that.

import { both, characterAt, ofConnection, toFilter } from "./words.js";
import { COLUMNS, count, csv, detail, element, heads, line, number, span } from "./show.js";

/** How long typing has to pause before the server is asked, in ms. */
const PAUSE = 120;
/** The lines of a page, and the most that the table holds. */
const PAGE_LINES = 100;
const LINES_MAX = 1000;
/** How often it is shown for how long no list has come, in ms. */
const HEALTH_INTERVAL = 5000;

const at = (id) => document.getElementById(id);

/** What the address asks for. */
const asked = { view: "connections", q: "", group: "", sort: "client", router: "", open: "", after: "" };
const DEFAULTS = { ...asked };
/** What the server answered. */
const shown = { items: [], next: null, routers: [], summary: null, kind: "connections" };
let current = 0;
let asking = null;

function readAddress() {
  const parameters = new URLSearchParams(location.search);
  for (const key of Object.keys(asked)) asked[key] = parameters.get(key) ?? DEFAULTS[key];
  at("words").value = asked.q;
  at("group").value = asked.group;
  at("sort").value = asked.sort.replace("-", "");
}

function address(changes = {}) {
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries({ ...asked, ...changes })) {
    if (value !== DEFAULTS[key]) parameters.set(key, value);
  }
  const text = parameters.toString();
  return text ? `?${text}` : location.pathname;
}

/** Asks for something else; typing replaces the address, the rest can be gone back from. */
function ask(changes, isTyping = false) {
  if (!("after" in changes) && !("open" in changes)) changes = { ...changes, after: "", open: "" };
  const to = address(changes);
  if (isTyping) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  readAddress();
  load();
}

/** The parameters of the question for connections. */
function question(limit, after) {
  const parameters = new URLSearchParams({ limit: String(limit), sort: asked.sort });
  const filter = toFilter(asked.q);
  if (filter) parameters.set("filter", filter);
  if (asked.group && asked.view !== "routers") parameters.set("group", asked.group);
  if (asked.router) parameters.set("router", asked.router);
  if (asked.view === "one") parameters.set("seen_by", "one");
  if (after) parameters.set("after", after);
  return `/api/v1/connections?${parameters}`;
}

async function fetched(path, signal) {
  const response = await fetch(path, { signal });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error.reason), { of: answer.error });
  return answer;
}

/** Loads what is asked for, as many lines as were there if it is the same again. */
async function load(lines = PAGE_LINES) {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === asked.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  at("search").hidden = asked.view === "routers";
  try {
    const isRouters = asked.view === "routers";
    const [routers, page] = await Promise.all([
      fetched("/api/v1/routers", signal),
      isRouters ? null : fetched(question(Math.min(lines, LINES_MAX), asked.after), signal),
    ]);
    shown.routers = routers.routers;
    shown.kind = isRouters ? "routers" : asked.group ? "groups" : "connections";
    shown.items = isRouters ? routers.routers : page.groups ?? page.connections;
    shown.next = page?.next ?? null;
    showMark(null);
    showSummary(routers);
    showFound(page);
    showTable();
    await showDetail(signal);
  } catch (error) {
    if (error.name !== "AbortError") showMark(error);
  }
}

/** Adds the next page, until the table holds as much as it may: then the next begins a table of its own. */
async function loadMore() {
  if (!shown.next) return;
  if (shown.items.length >= LINES_MAX) return ask({ after: shown.next, open: "" });
  const next = shown.next;
  shown.next = null;
  try {
    const page = await fetched(question(PAGE_LINES, next), asking.signal);
    const items = page.groups ?? page.connections;
    shown.items.push(...items);
    shown.next = page.next;
    at("rows").append(...items.map(lineOf));
    showMore();
  } catch (error) {
    if (error.name !== "AbortError") showMark(error);
  }
}

function showMark(error) {
  const mark = at("mark");
  mark.hidden = error === null;
  at("words").setAttribute("aria-invalid", String(error !== null));
  if (error === null) return;
  const filter = toFilter(asked.q);
  const isMarked = error.of?.position !== undefined;
  const place = isMarked ? `\n  ${filter}\n  ${" ".repeat(characterAt(filter, error.of.position))}^` : "";
  mark.textContent = (error.of ? error.message : `The server does not answer: ${error.message}`) + place;
}

function showSummary({ view, routers, problem }) {
  shown.summary = view;
  const inView = `${number(view.routers_in_view)} of ${count(view.routers, "router")}`;
  at("summary").textContent = `${number(view.connections)} open · ${inView} · ${view.end.slice(11, 19)} UTC`;
  const faults = [];
  if (problem) faults.push(problem);
  for (const router of routers) {
    if (router.health === "waiting") faults.push(`${router.name} has no list yet`);
    else if (router.health !== "reporting") faults.push(`${router.name} is ${router.health}${router.silent === undefined ? "" : ` (last list ${span(router.silent)} ago)`}`);
    else if (!router.complete) faults.push(`${router.name} misses about ${number(router.missing)}`);
  }
  const banner = at("banner");
  banner.hidden = view.complete && !problem;
  const some = faults.slice(0, 4).join(", ") + (faults.length > 4 ? `, and ${faults.length - 4} more` : "");
  const text = `Not complete: ${some || "there is no router"}.`;
  if (!banner.hidden && banner.textContent !== text) banner.textContent = text;
}

function showFound(page) {
  const parts = [];
  if (page) {
    parts.push(page.groups ? `${count(page.group_count, "group")} of ${count(page.selected, "connection")}` : count(page.selected, "connection"));
    const filter = toFilter(asked.q);
    if (filter && filter !== asked.q.trim()) parts.push(`filter: ${filter}`);
    if (asked.view === "one") parts.push("seen by one router only");
  }
  const found = at("found");
  const text = parts.join(" · ");
  found.replaceChildren(text);
  if (asked.router) found.append(" · ", chip(`router: ${asked.router}`, () => ask({ router: "" })));
  if (asked.after) found.append(" · ", chip("from the top", () => ask({ after: "" })));
}

function chip(text, onclick) {
  return element("button", { type: "button", class: "tag", text, onclick });
}

function keyOf(item) {
  if (shown.kind === "connections") return [ofConnection(item), ...(item.vlan ?? [])].join(" ");
  return shown.kind === "groups" ? item.value : item.name;
}

function lineOf(item) {
  return line(COLUMNS[shown.kind], item, keyOf(item));
}

function showTable() {
  const columns = COLUMNS[shown.kind].map((column, place) => (shown.kind === "groups" && place === 0 ? { ...column, name: at("group").selectedOptions[0].text } : column));
  at("columns").replaceChildren(...heads(columns, asked.sort, (sort) => ask({ sort })));
  const before = document.activeElement?.closest?.("#rows tr")?.dataset.key;
  at("rows").replaceChildren(...shown.items.map(lineOf));
  const lines = [...at("rows").children];
  const again = before === undefined ? -1 : lines.findIndex((made) => made.dataset.key === before);
  current = again >= 0 ? again : Math.min(current, Math.max(0, lines.length - 1));
  if (lines[current]) lines[current].tabIndex = 0;
  if (before !== undefined) lines[current]?.focus({ preventScroll: true });
  at("table").hidden = lines.length === 0;
  showEmpty();
  showMore();
}

function showMore() {
  at("more").hidden = !shown.next;
  at("more-button").textContent = shown.items.length >= LINES_MAX ? `The next ${number(LINES_MAX)}` : "More";
}

/** Says why there is nothing. */
function showEmpty() {
  const empty = at("empty");
  empty.hidden = shown.items.length > 0;
  if (!empty.hidden) empty.replaceChildren(...whyEmpty());
}

function whyEmpty() {
  const strong = (text) => element("strong", { text });
  const { routers, summary } = shown;
  if (routers.length === 0) return [strong("No router yet"), "There is no list in the directories that are followed. flowpeel live --out DIR writes them."];
  if (routers.every((router) => router.health === "waiting")) return [strong("No list has come yet"), `From ${routers.map((router) => router.name).join(", ")}.`];
  if (asked.q) return [strong("No open connection matches"), "Of those that are open now. ", chip("Clear the search", () => ask({ q: "" }))];
  if (asked.view === "one" && summary.routers_in_view < 2) return [strong("There is one router"), "With a second one this shows what only one of them sees."];
  if (asked.view === "one") return [strong("All routers agree"), "No connection is seen by one router only."];
  return [strong("No connection is open"), `At ${summary.end.slice(0, 19).replace("T", " ")} UTC.`];
}

/** Shows the connection that the address names, if it is still open. */
async function showDetail(signal) {
  const panel = at("detail");
  let row = asked.open && shown.kind === "connections" ? shown.items.find((item) => keyOf(item) === asked.open) : undefined;
  if (asked.open && !row) {
    const filter = asked.open.split(" ").slice(0, 9).join(" ");
    const answer = await fetched(`/api/v1/connections?${new URLSearchParams({ filter, limit: "1" })}`, signal);
    row = answer.connections[0];
  }
  for (const made of at("rows").children) made.setAttribute("aria-selected", String(asked.open !== "" && made.dataset.key === asked.open));
  panel.hidden = !asked.open;
  if (!asked.open) return;
  const close = element("button", { type: "button", class: "close", text: "×", "aria-label": "Close", onclick: closeDetail });
  if (!row) {
    panel.replaceChildren(close, element("h2", { text: "This connection has ended" }), element("p", { class: "end", text: asked.open }));
    return;
  }
  const go = (q) => () => ask({ view: "connections", q, group: "", router: "" });
  const actions = [
    ["All of this client", go(`client ${row.src_ip}`)],
    ["All of this server", go(`server ${row.dest_ip}`)],
    ["Between both", go(`client ${row.src_ip} and server ${row.dest_ip}`)],
    ["Copy filter", () => copy(ofConnection(row))],
  ];
  panel.replaceChildren(close, element("h2", { text: "Connection" }), ...detail(row, shown.routers, actions));
}

function closeDetail() {
  ask({ open: "", after: asked.after });
  at("rows").children[current]?.focus();
}

/** Opens a line: a connection beside the table, a group or a router as a filter. */
function open(place) {
  const item = shown.items[place];
  if (!item) return;
  if (shown.kind === "connections") return ask({ open: keyOf(item), after: asked.after });
  if (shown.kind === "routers") return ask({ view: "connections", router: item.name, group: "", q: "" });
  if (asked.group === "router") return ask({ router: item.value, group: "" });
  const test = { client: "client ", server: "server ", port: "server port ", state: "" }[asked.group] + item.value;
  return ask({ q: both(toFilter(asked.q), test), group: "" });
}

function moveTo(place) {
  const lines = at("rows").children;
  const to = Math.max(0, Math.min(place, lines.length - 1));
  if (!lines[to]) return;
  if (lines[current]) lines[current].tabIndex = -1;
  current = to;
  lines[to].tabIndex = 0;
  lines[to].focus();
  if (to >= lines.length - 10) loadMore();
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    at("found").textContent = "Copied.";
  } catch {
    at("found").textContent = "The browser does not let this page copy.";
  }
}

const VIEW_KEYS = { 1: "connections", 2: "one", 3: "routers" };

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || at("help").open) return;
  const isTyping = event.target.matches("input, select, textarea");
  const isButton = event.target.matches("button, a");
  if (event.key === "Escape") {
    if (asked.open) closeDetail();
    else if (asked.q) ask({ q: "" });
    else at("words").blur();
  } else if (event.target === at("words") && event.key === "ArrowDown") moveTo(current);
  else if (isTyping) return;
  else if (event.key === "/") at("words").focus();
  else if (event.key === "?") at("help").showModal();
  else if (event.key === "ArrowDown") moveTo(document.activeElement?.closest("#rows tr") ? current + 1 : current);
  else if (event.key === "ArrowUp") moveTo(current - 1);
  else if (event.key === "Home") moveTo(0);
  else if (event.key === "End") moveTo(shown.items.length - 1);
  else if (event.key === "Enter" && !isButton) open(current);
  else if (VIEW_KEYS[event.key]) ask({ view: VIEW_KEYS[event.key] });
  else if (event.key === "g") {
    const select = at("group");
    select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
    ask({ group: select.value });
  } else return;
  event.preventDefault();
}

let pause;
at("words").addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(() => ask({ q: at("words").value }, true), PAUSE);
});
at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(pause);
  ask({ q: at("words").value });
});
at("group").addEventListener("change", () => ask({ group: at("group").value }));
at("sort").addEventListener("change", () => ask({ sort: at("sort").value }));
at("copy-csv").addEventListener("click", () => (shown.kind === "connections" ? copy(csv(shown.items)) : (at("found").textContent = "Groups are not copied: open one.")));
at("copy-filter").addEventListener("click", () => copy(toFilter(asked.q)));
at("help-open").addEventListener("click", () => at("help").showModal());
at("more-button").addEventListener("click", loadMore);
at("rows").addEventListener("click", (event) => {
  const place = [...at("rows").children].indexOf(event.target.closest("tr"));
  if (place < 0) return;
  moveTo(place);
  open(place);
});
for (const link of document.querySelectorAll("[data-view]")) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    ask({ view: link.dataset.view });
  });
}
document.addEventListener("keydown", onKey);
addEventListener("popstate", () => {
  readAddress();
  load();
});
new IntersectionObserver((entries) => {
  if (entries.some((entry) => entry.isIntersecting) && shown.items.length < LINES_MAX) loadMore();
}).observe(at("more"));

const again = () => load(Math.max(PAGE_LINES, shown.items.length));
readAddress();
await load();
const events = new EventSource("/api/v1/events");
let view = shown.summary?.view;
events.addEventListener("view", (event) => {
  const latest = JSON.parse(event.data).view;
  if (latest !== view) again();
  view = latest;
});
setInterval(async () => {
  try {
    const routers = await fetched("/api/v1/routers");
    if (asked.view === "routers") again();
    else showSummary(routers);
  } catch (error) {
    showMark(error);
  }
}, HEALTH_INTERVAL);

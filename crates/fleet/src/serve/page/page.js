// The page: what is asked for stands in the address, what is shown is what the server answered to that.

import { both, characterAt, ofConnection, toEnds, toFilter } from "./words.js";
import { count, element, end, number, span } from "./elements.js";
import { COLUMNS, csv, detail, heads, line } from "./show.js";
import { charts } from "./charts.js";
import { axisOf, earlier, life, stamp } from "./timeline.js";

/** How long typing has to pause before the server is asked, in ms. */
const PAUSE = 120;
/** The lines of a page, and the most that the table holds. */
const PAGE_LINES = 100;
const LINES_MAX = 1000;
/** How often it is shown for how long no list has come, in ms. */
const HEALTH_INTERVAL = 5000;
/** The steps of a chart at most: more than it has place for bars. */
const CHART_STEPS = 240;
/** Earlier connections between the same ends that are shown beside one. */
const EARLIER_LINES = 6;
/** What may be typed, in each view. */
const HINTS = {
  connections: "10.0.0.7, https, 10.2.0.0/16, or: client net 10.0.0.0/8 and age > 1h",
  history: "an address, to see what it had: 10.0.0.7, or 10.0.0.7 192.0.2.1:443",
};

const at = (id) => document.getElementById(id);

/** What the address asks for. */
const asked = { view: "connections", q: "", group: "", sort: "client", router: "", range: "", open: "", after: "" };
const DEFAULTS = { ...asked };
/** What the server answered. */
const shown = { items: [], next: null, routers: [], summary: null, kind: "connections", course: null, reason: null, axis: null };
let current = 0;
let asking = null;
/** The connection whose life is looked up, or shown. A view that comes meanwhile changes nothing of it. */
let looking = { of: "", controller: new AbortController() };

function readAddress() {
  const parameters = new URLSearchParams(location.search);
  for (const key of Object.keys(asked)) asked[key] = parameters.get(key) ?? DEFAULTS[key];
  at("words").value = asked.q;
  at("group").value = asked.group;
  at("sort").value = asked.sort.replace("-", "");
  at("range").value = asked.range;
  at("words").placeholder = HINTS[asked.view] ?? HINTS.connections;
  at("search").hidden = asked.view === "routers";
  at("router").closest("label").classList.toggle("useless", asked.q !== "");
  for (const part of document.querySelectorAll("[data-in]")) part.hidden = !part.dataset.in.split(" ").includes(asked.view);
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === asked.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
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

/** The question for connections, open ones or those of the past. */
function question(limit, after) {
  if (asked.view === "history") return pastQuestion(toEnds(asked.q), limit, after);
  const parameters = new URLSearchParams({ limit: String(limit), sort: asked.sort });
  const filter = toFilter(asked.q);
  if (filter) parameters.set("filter", filter);
  if (asked.group) parameters.set("group", asked.group);
  if (asked.router) parameters.set("router", asked.router);
  if (asked.view === "one") parameters.set("seen_by", "one");
  if (after) parameters.set("after", after);
  return `/api/v1/connections?${parameters}`;
}

/** The question for what these ends had in the past. */
function pastQuestion([one, other], limit, after) {
  const parameters = new URLSearchParams({ limit: String(limit), end: one });
  if (other) parameters.set("other", other);
  if (asked.range) parameters.set("since", asked.range);
  if (after) parameters.set("after", after);
  return `/api/v1/past?${parameters}`;
}

/** The question for the figures of intervals. */
function courseQuestion() {
  const parameters = new URLSearchParams({ points: String(CHART_STEPS) });
  if (asked.range) parameters.set("since", asked.range);
  if (asked.router) parameters.set("router", asked.router);
  return `/api/v1/history?${parameters}`;
}

async function fetched(path, signal) {
  let response = await fetch(path, { signal });
  while (response.status === 401) {
    await signedIn();
    response = await fetch(path, { signal });
  }
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error.reason), { of: answer.error, status: response.status });
  return answer;
}

let signingIn = null;

/** Asks for the token, once for all that waits for it. The browser has a cookie then, and the page keeps nothing. */
function signedIn() {
  signingIn ??= new Promise((done) => {
    const fault = (text) => (at("sign-in-fault").textContent = text);
    at("sign-in").showModal();
    at("sign-in-form").onsubmit = async (event) => {
      event.preventDefault();
      const token = at("token").value.trim();
      // A header has nothing else.
      if (!/^[\x21-\x7e]+$/.test(token)) return fault("A token has letters, digits and signs.");
      try {
        const response = await fetch("/session", { method: "POST", headers: { authorization: `Bearer ${token}` } });
        if (!response.ok) return fault(response.status === 401 ? "This is not the token." : `The server says ${response.status}.`);
      } catch (error) {
        return fault(`The server does not answer: ${error.message}`);
      }
      at("token").value = "";
      at("sign-in").close();
      at("sign-out").hidden = false;
      signingIn = null;
      done();
    };
  });
  return signingIn;
}

/** What there is where nothing answers a question: no archive is a reason, and no failure. */
async function orReason(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error.status !== 404) throw error;
    return { connections: [], next: null, reason: error.of.reason };
  }
}

/** What is asked for, which depends on the view. */
async function answerFor(lines, signal) {
  if (asked.view === "routers") return { kind: "routers" };
  if (asked.view !== "history") {
    const page = await fetched(question(lines, asked.after), signal);
    return { kind: asked.group ? "groups" : "connections", page, items: page.groups ?? page.connections };
  }
  const ends = toEnds(asked.q);
  if (ends === null) throw Object.assign(new Error("In the history an address is searched for, with a port or without, or two of them."), { of: {} });
  if (ends.length === 0) return { kind: "charts", course: await fetched(courseQuestion(), signal) };
  const page = await orReason(fetched(question(lines, asked.after), signal));
  return { kind: "past", page, items: page.connections };
}

/** The server remembers the order of groups for so long only: then they are shown from the top, in the order of now. */
function fromTheTop(error) {
  if (error.status !== 410) return false;
  history.replaceState(null, "", address({ after: "" }));
  readAddress();
  load();
  return true;
}

/** Loads what is asked for, as many lines as were there if it is the same again. */
async function load(lines = PAGE_LINES) {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  try {
    const [routers, answer] = await Promise.all([fetched("/api/v1/routers", signal), answerFor(Math.min(lines, LINES_MAX), signal)]);
    shown.routers = inOrder(routers.routers);
    shown.kind = answer.kind;
    shown.items = answer.items ?? (answer.kind === "routers" ? shown.routers : []);
    shown.course = answer.course ?? null;
    shown.reason = answer.page?.reason ?? null;
    shown.next = answer.page?.next ?? null;
    showMark(null);
    showSummary(routers);
    showRouterChoice();
    showFound(answer.page);
    showDrawings();
    showTable();
    await showDetail(signal);
  } catch (error) {
    if (error.name !== "AbortError" && !fromTheTop(error)) showMark(error);
  }
}

/** Routers by name, as people count: edge-2 before edge-10. */
function inOrder(routers) {
  return [...routers].sort((one, other) => one.name.localeCompare(other.name, "en", { numeric: true }));
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
    if (shown.kind === "past") showTable();
    else at("rows").append(...items.map(lineOf));
    showMore();
  } catch (error) {
    if (error.name !== "AbortError" && !fromTheTop(error)) showMark(error);
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
  const isFine = view.complete && !problem;
  at("summary").replaceChildren(
    element("span", { class: `health ${isFine ? "reporting" : "late"}`, text: isFine ? "complete" : "not complete" }),
    element("span", {}, element("b", { text: number(view.connections) }), " open"),
    element("span", { text: inView }),
    element("time", { text: `${view.end.slice(11, 19)} UTC` }),
  );
  const faults = [];
  if (problem) faults.push(problem);
  for (const router of inOrder(routers)) {
    if (router.health === "waiting") faults.push(`${router.name} has no list yet`);
    else if (router.health !== "reporting") faults.push(`${router.name} is ${router.health}${ageOf(router)}`);
    else if (!router.complete) faults.push(`${router.name} ${router.partitions_missing ? "lacks a share" : `misses about ${number(router.missing)}`}`);
  }
  const banner = at("banner");
  banner.hidden = isFine;
  const some = faults.slice(0, 4).join(", ") + (faults.length > 4 ? `, and ${faults.length - 4} more` : "");
  const text = `Not complete: ${some || "there is no router"}.`;
  if (!banner.hidden && banner.textContent !== text) banner.textContent = text;
}

/** By what a router is late: lists that come, but are old, or none that comes. */
function ageOf({ behind, interval, silent }) {
  if (behind * interval > silent) return ` (${count(behind, "interval")} behind the others)`;
  return silent === undefined ? "" : ` (last list ${span(silent)} ago)`;
}

/** The routers that charts can be of. */
function showRouterChoice() {
  const choice = at("router");
  const names = shown.routers.map((router) => router.name);
  const known = [...choice.options].slice(1).map((option) => option.value);
  if (choice.options.length === 0 || names.join("\n") !== known.join("\n")) {
    choice.replaceChildren(element("option", { value: "", text: "all" }), ...names.map((name) => element("option", { value: name, text: name })));
  }
  choice.value = asked.router;
}

/** The charts, if they are asked for. */
function showDrawings() {
  const drawings = at("drawings");
  const isWanted = shown.kind === "charts" && shown.course.points.length > 0;
  drawings.hidden = !isWanted;
  if (!isWanted) return drawings.replaceChildren();
  // Who reads a table or stands in a chart stays there.
  const isOpen = drawings.querySelector("details")?.open;
  const focused = [...drawings.querySelectorAll("[role=slider]")].indexOf(document.activeElement);
  drawings.replaceChildren(...charts(shown.course));
  if (isOpen) drawings.querySelector("details").open = true;
  drawings.querySelectorAll("[role=slider]")[focused]?.focus({ preventScroll: true });
}

function showFound(page) {
  const parts = [];
  const filter = toFilter(asked.q);
  if (shown.kind === "charts") parts.push(...courseWords(shown.course));
  else if (shown.kind === "past") parts.push(...pastWords(page));
  else if (page) {
    parts.push(page.groups ? `${count(page.group_count, "group")} of ${count(page.selected, "connection")}` : count(page.selected, "connection"));
    if (filter && filter !== asked.q.trim()) parts.push(`filter: ${filter}`);
    if (asked.view === "one") parts.push("seen by one router only");
  }
  const found = at("found");
  found.replaceChildren(parts.join(" · "));
  const ends = asked.view === "connections" && asked.q ? toEnds(asked.q) : null;
  if (ends?.length) found.append(" · ", chip("what it had before", () => ask({ view: "history", group: "", router: "" })));
  if (shown.kind === "past") found.append(" · ", chip("what is open now", () => ask({ view: "connections", range: "" })));
  if (asked.router && asked.view !== "history") found.append(" · ", chip(`router: ${asked.router}`, () => ask({ router: "" })));
  if (asked.after) found.append(" · ", chip("from the top", () => ask({ after: "" })));
}

function courseWords(course) {
  const words = [course.kept_since ? `lists are kept since ${stamp(course.kept_since)} UTC` : "no list is kept"];
  words.push(`steps of ${span(course.step)}`);
  if (!asked.router && course.routers > 1) words.push(`${count(course.routers, "router")} added up: what two see counts twice`);
  return words;
}

function pastWords(page) {
  if (page.reason) return ["no archive"];
  const words = [`${count(shown.items.length, "connection")}${page.next ? " so far" : ""} of the archives, the latest first`];
  if (!page.complete) words.push(page.problems[0] ?? "the search took too long: there may be more");
  return words;
}

function chip(text, onclick) {
  return element("button", { type: "button", class: "tag chip", text, onclick });
}

function keyOf(item) {
  if (shown.kind === "connections") return nameOf(item);
  if (shown.kind === "past") return `${nameOf(item)} @${item.flow.start} ${item.flow.reason ?? ""} ${item.router}`;
  return shown.kind === "groups" ? item.value : item.name;
}

function nameOf(item) {
  return [ofConnection(item), ...(item.vlan ?? [])].join(" ");
}

function lineOf(item) {
  return line(COLUMNS[shown.kind], item, keyOf(item), shown.axis);
}

function showTable() {
  if (shown.kind === "charts") {
    at("rows").replaceChildren();
    at("table").hidden = true;
    showEmpty();
    return showMore();
  }
  shown.axis = shown.kind === "past" ? axisOf(shown.items) : null;
  at("table").dataset.kind = shown.kind;
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
  empty.hidden = shown.items.length > 0 || (shown.kind === "charts" && shown.course.points.length > 0);
  if (!empty.hidden) empty.replaceChildren(...whyEmpty());
}

function whyEmpty() {
  const strong = (text) => element("strong", { text });
  const { routers, summary } = shown;
  if (routers.length === 0) return [strong("No router yet"), "There is no list in the directories that are followed. flowpeel live --out DIR writes them."];
  if (routers.every((router) => router.health === "waiting")) return [strong("No list has come yet"), `From ${routers.map((router) => router.name).join(", ")}.`];
  if (shown.kind === "charts") return [strong("No list ended in this time"), "Charts are of the lists that are kept. ", asked.range || asked.router ? chip("All that there is", () => ask({ range: "", router: "" })) : "flowpeel live --keep says for how long."];
  if (shown.reason) return [strong("There is no archive here"), "flowpeel live --archive DIR writes one, and flowpeel-fleet serve --archive DIR shows it. Open connections have their life in the lists that are kept."];
  if (shown.kind === "past") return [strong("No archive has a connection of it"), "In the time that is asked for. ", chip("What is open now", () => ask({ view: "connections", range: "" }))];
  const router = routers.find(({ name }) => name === asked.router);
  if (asked.router && !router?.in_view) return [strong(router ? `${router.name} is ${router.health}` : `There is no router ${asked.router}`), "So none of its connections is in the view. ", chip("All routers", () => ask({ router: "" }))];
  if (asked.q) {
    const before = toEnds(asked.q)?.length ? [chip("What it had before", () => ask({ view: "history", group: "", router: "" })), " "] : [];
    return [strong("No open connection matches"), ...before, chip("Clear the search", () => ask({ q: "" }))];
  }
  if (asked.view === "one" && summary.routers_in_view < 2) return [strong("There is one router"), "With a second one this shows what only one of them sees."];
  if (asked.view === "one") return [strong("All routers agree"), `No connection is seen by ${asked.router || "one router"} only.`];
  return [strong("No connection is open"), `At ${summary.end.slice(0, 19).replace("T", " ")} UTC.`];
}

/** Shows the connection that the address names, if it is still open, and what became of it. */
async function showDetail(signal) {
  const panel = at("detail");
  for (const made of at("rows").children) made.setAttribute("aria-selected", String(asked.open !== "" && made.dataset.key === asked.open));
  panel.hidden = !asked.open;
  const isSame = looking.of === asked.open;
  if (!isSame) {
    looking.controller.abort();
    looking = { of: asked.open, controller: new AbortController() };
  }
  if (!asked.open) return panel.replaceChildren();
  const [name] = asked.open.split(" @");
  let row = ["connections", "past"].includes(shown.kind) ? shown.items.find((item) => keyOf(item) === asked.open) : undefined;
  if (!row) {
    const filter = name.split(" ").slice(0, 9).join(" ");
    const answer = await fetched(`/api/v1/connections?${new URLSearchParams({ filter, limit: "1" })}`, signal);
    row = answer.connections[0];
  }
  const close = element("button", { type: "button", class: "close", text: "×", "aria-label": "Close", onclick: closeDetail });
  const course = isSame ? panel.querySelector(".course") : null;
  const shownCourse = course ?? element("section", { class: "course", "aria-label": "Its life" });
  if (row) panel.replaceChildren(close, element("h2", { text: "Connection" }), shownCourse, ...detail(row, shown.routers, actionsFor(row)));
  else panel.replaceChildren(close, element("h2", { text: "This connection has ended" }), element("p", { class: "end", text: name }), shownCourse);
  if (!course) showCourse(shownCourse, name, row, looking.controller.signal);
}

function actionsFor(row) {
  const go = (q) => () => ask({ view: "connections", q, group: "", router: "", range: "" });
  const past = (q) => () => ask({ view: "history", q, group: "", router: "" });
  return [
    ["All of this client", go(`client ${row.src_ip}`)],
    ["All of this server", go(`server ${row.dest_ip}`)],
    ["Between both", go(`client ${row.src_ip} and server ${row.dest_ip}`)],
    ["History of the client", past(row.src_ip)],
    ["History of the server", past(end(row.dest_ip, row.dest_port))],
    ["Copy filter", () => copy(ofConnection(row))],
  ];
}

/** Shows what lists and archives have of a connection, which takes longer than the rest. */
async function showCourse(place, name, row, signal) {
  place.replaceChildren(element("h3", { text: "Its life" }), element("p", { class: "note", text: "Looking into the lists" }));
  const [, client, , clientPort, , , server, , serverPort, ...vlan] = name.split(" ");
  const [one, other] = [end(client, clientPort), end(server, serverPort)];
  try {
    const [lists, past] = await Promise.all([
      fetched(`/api/v1/life?${new URLSearchParams({ client: one, server: other, vlan: vlan.join(".") })}`, signal),
      orReason(fetched(`/api/v1/past?${new URLSearchParams({ end: one, other, limit: String(EARLIER_LINES) })}`, signal)),
    ]);
    const before = past.connections.filter((found) => found.flow.start !== row?.flow.start);
    place.replaceChildren(element("h3", { text: "Its life" }), ...life(lists, row));
    if (before.length > 0) place.append(element("h3", { text: row ? "Between the same ends" : "In the archives" }), earlier(before));
  } catch (error) {
    if (error.name !== "AbortError") place.replaceChildren(element("h3", { text: "Its life" }), element("p", { class: "note", text: error.message }));
  }
}

function closeDetail() {
  ask({ open: "", after: asked.after });
  at("rows").children[current]?.focus();
}

/** Opens a line: a connection beside the table, a group or a router as a filter. */
function open(place) {
  const item = shown.items[place];
  if (!item) return;
  if (shown.kind === "connections" || shown.kind === "past") return ask({ open: keyOf(item), after: asked.after });
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

/** Goes to another view. What is searched for goes along where it means something there. */
function goTo(view) {
  const keeps = view !== "history" && asked.view !== "history" ? true : toEnds(asked.q)?.length > 0;
  ask({ view, q: keeps ? asked.q : "", range: "", router: view === "history" || asked.view === "history" ? "" : asked.router });
}

const VIEW_KEYS = { 1: "connections", 2: "one", 3: "routers", 4: "history" };

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isTyping = event.target.matches("input, select, textarea");
  const isButton = event.target.matches("button, a, summary");
  if (event.target.closest(".scroll") && event.key !== "Escape") return;
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
  else if (VIEW_KEYS[event.key]) goTo(VIEW_KEYS[event.key]);
  else if (event.key === "g" && !at("group").closest("label").hidden) {
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
at("range").addEventListener("change", () => ask({ range: at("range").value }));
at("router").addEventListener("change", () => ask({ router: at("router").value }));
at("sort").addEventListener("change", () => ask({ sort: at("sort").value }));
at("copy-csv").addEventListener("click", () => (shown.kind === "connections" ? copy(csv(shown.items)) : (at("found").textContent = "Groups are not copied: open one.")));
at("copy-filter").addEventListener("click", () => copy(toFilter(asked.q)));
at("sign-in").addEventListener("cancel", (event) => event.preventDefault());
at("sign-out").addEventListener("click", async () => {
  await fetch("/session", { method: "DELETE" });
  location.reload();
});
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
    goTo(link.dataset.view);
  });
}
document.addEventListener("keydown", onKey);
addEventListener("popstate", () => {
  readAddress();
  load();
});
new IntersectionObserver((entries) => {
  if (entries.some((entry) => entry.isIntersecting) && shown.kind !== "past" && shown.items.length < LINES_MAX) loadMore();
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

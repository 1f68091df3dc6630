// What the page shows of connections, groups and routers: lines of tables, a connection by itself, and csv.

import { element, end, endShown, number, span, state } from "./elements.js";
import { bar, ending, stamp, times } from "./timeline.js";

const HEALTH = new Set(["reporting", "late", "gone", "waiting", "unreadable"]);

function health(name) {
  return element("span", { class: `health ${HEALTH.has(name) ? name : ""}`, text: name });
}

const TAGS_MAX = 4;

function routers(names) {
  const shown = names.slice(0, TAGS_MAX).map((name) => element("span", { class: "tag", text: name, title: name }));
  const rest = names.length - shown.length;
  return [...shown, rest > 0 ? element("span", { class: "tag", text: `+${rest}`, title: names.join(", ") }) : null];
}

/** The columns of each kind of table: its name, its order if it has one, its class, what it shows. */
export const COLUMNS = {
  connections: [
    { name: "Client", sort: "client", class: "end wide", show: (row) => endShown(row.src_ip, row.src_port, false) },
    { name: "Server", sort: "server", class: "end wide", label: "→", show: (row) => endShown(row.dest_ip, row.dest_port, true) },
    { name: "State", sort: "state", show: (row) => [state(row.flow.state)] },
    { name: "Age", sort: "age", class: "number", show: (row) => [(row.flow.midstream || row.flow.start_is_bound ? "> " : "") + span(row.flow.age)] },
    { name: "Routers", class: "wide", show: (row) => routers(row.routers) },
  ],
  groups: [
    { name: "", class: "end wide", show: (group) => [group.value] },
    { name: "Established", class: "number", label: "established", show: (group) => [number(group.established)] },
    { name: "Half-open", class: "number", label: "half-open", show: (group) => [number(group.half_open)] },
    { name: "Oldest", class: "number", label: "oldest", show: (group) => [span(group.oldest_age)] },
  ],
  past: [
    { name: "Started", class: "time", show: (row) => [(row.flow.midstream || row.flow.start_is_bound ? "≤ " : "") + stamp(row.flow.start)] },
    { name: "Client", class: "end wide", show: (row) => endShown(row.src_ip, row.src_port, false) },
    { name: "Server", class: "end wide", label: "→", show: (row) => endShown(row.dest_ip, row.dest_port, true) },
    { name: "Ended", show: (row) => [ending(row)] },
    { name: "Lasted", class: "number", show: (row) => [span(row.flow.age)] },
    { name: "Router", show: (row) => routers([row.router]) },
    { name: "Time line", class: "line", show: (row, axis) => [bar(times(row), axis, row.flow.reason ?? "open")] },
  ],
  routers: [
    { name: "Router", class: "wide name", show: (router) => [router.name] },
    { name: "Health", show: (router) => [health(router.health)] },
    { name: "Last list", class: "number", label: "last list", show: (router) => [router.silent === undefined ? "never" : `${span(router.silent)} ago`] },
    { name: "Connections", class: "number", label: "connections", show: (router) => [number(router.connections)] },
    { name: "Only here", class: "number", label: "only here", show: (router) => [number(router.only_here)] },
    { name: "Opened", class: "number", label: "opened", show: (router) => [number(router.opened)] },
    { name: "Closed", class: "number", label: "closed", show: (router) => [number(router.closed)] },
    { name: "Complete", class: "wide", label: "complete:", show: (router) => [complete(router)] },
  ],
};

function complete(router) {
  if (router.problem) return router.problem;
  const restart = router.restarted ? `, began anew before ${router.restarted.slice(0, 19).replace("T", " ")}` : "";
  if (!router.in_view) return `not in the view${restart}`;
  return (router.complete ? "yes" : `no, about ${number(router.missing)} missing`) + restart;
}

/** The heads of the columns, with buttons for those by which can be sorted. */
export function heads(columns, sort, onSort) {
  return columns.map((column) => {
    const isNow = column.sort !== undefined && sort.replace("-", "") === column.sort;
    const order = isNow ? (sort.startsWith("-") ? "descending" : "ascending") : undefined;
    const inside = column.sort
      ? element("button", { type: "button", text: column.name, onclick: () => onSort(isNow && !sort.startsWith("-") ? `-${column.sort}` : column.sort) })
      : element("span", { text: column.name });
    const isNumber = (column.class ?? "").includes("number");
    return element("th", { scope: "col", role: "columnheader", "aria-sort": order, class: isNumber ? "number" : undefined }, inside);
  });
}

/** A line of a table. */
export function line(columns, item, key, axis) {
  const cells = columns.map((column) => element("td", { role: "gridcell", class: column.class, "data-label": column.label }, ...column.show(item, axis)));
  return element("tr", { role: "row", tabindex: "-1", "data-key": key }, ...cells);
}

/** What a router saw of a connection, where that is one side alone. */
function sideOf(direction) {
  return { client: ": client’s side", server: ": server’s side" }[direction] ?? "";
}

/** What is known of a connection, and what can be asked next. */
export function detail(row, known, actions) {
  const facts = [];
  const fact = (name, ...value) => facts.push(element("dt", { text: name }), element("dd", {}, ...value));
  const { flow } = row;
  fact("Client", element("span", { class: "end" }, ...endShown(row.src_ip, row.src_port, false)));
  fact("Server", element("span", { class: "end" }, ...endShown(row.dest_ip, row.dest_port, true)));
  if (row.vlan) fact("VLAN", row.vlan.join(", "));
  fact("State", row.router ? ending(row) : state(flow.state));
  fact("Started", `${flow.start.replace("T", " ").slice(0, 21)} UTC${flow.start_is_bound ? " or earlier" : ""}`);
  if (flow.end) fact("Ended", `${flow.end.replace("T", " ").slice(0, 21)} UTC`);
  fact(flow.end ? "Lasted" : "Age", span(flow.age));
  if (flow.midstream) fact("Handshake", "not seen: it may be older");
  if (flow.unsettled) fact("Unsettled", "it may have closed while flowpeel was down");
  const seen = row.routers ?? [row.router];
  fact(row.router ? "Archive of" : "Seen by", ...seen.map((name, at) => element("span", { class: "tag", text: name + sideOf(row.directions?.[at]) })));
  const others = row.router ? [] : known.filter((router) => router.in_view && !seen.includes(router.name));
  if (others.length > 0) fact("Not by", ...others.map((router) => element("span", { class: "tag absent", text: router.name })));
  fact("Community ID", element("span", { class: "id", text: row.community_id }));
  const buttons = actions.map(([text, onclick]) => element("button", { type: "button", text, onclick }));
  return [element("dl", {}, ...facts), element("p", { class: "actions" }, ...buttons)];
}

/** Lines as csv: texts that a spreadsheet would take for formulas are marked as texts. */
export function csv(rows) {
  const quoted = (value) => {
    const text = String(value).replace(/^[=+\-@\t\r]/, "'$&");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const names = ["src_ip", "src_port", "dest_ip", "dest_port", "start", "age", "state", "routers"];
  const lines = rows.map((row) => [row.src_ip, row.src_port, row.dest_ip, row.dest_port, row.flow.start, row.flow.age, row.flow.reason ?? row.flow.state, (row.routers ?? [row.router]).join(" ")]);
  return [names, ...lines].map((values) => values.map(quoted).join(",")).join("\n") + "\n";
}

// Elements and texts of which the page is built. Nothing is ever put in as markup.

import { serviceOf } from "./words.js";

/** An element with properties and children; texts are texts. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "text") made.textContent = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A part of a drawing. */
export function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(document.querySelector("svg").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** A time span as its two largest units. */
export function span(seconds) {
  let rest = Math.max(0, Math.floor(seconds));
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0 || parts.length > 0) parts.push(`${count}${unit}`);
    if (parts.length === 2) break;
  }
  return parts.join(" ") || "0s";
}

const NUMBERS = new Intl.NumberFormat("en");

export function count(number, one, many) {
  return `${NUMBERS.format(number)} ${number === 1 ? one : many ?? `${one}s`}`;
}

export function number(value) {
  return NUMBERS.format(value);
}

/** An end of a connection. */
export function end(address, port) {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** An end of a connection, with the name of its service where it has one. */
export function endShown(address, port, isServer) {
  const text = end(address, port);
  const host = text.slice(0, text.length - String(port).length);
  const service = isServer ? serviceOf(port) : undefined;
  return [host, element("span", { class: "port", text: String(port) }), service ? element("span", { class: "service", text: service }) : null];
}

const STATE_NAMES = { established: "established", syn_sent: "SYN sent", syn_recv: "SYN received" };

export function state(name) {
  return element("span", { class: `state ${Object.hasOwn(STATE_NAMES, name) ? name : ""}`, text: STATE_NAMES[name] ?? name });
}

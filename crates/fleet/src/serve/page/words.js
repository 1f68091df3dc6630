// Plain words, as a person types them -> a filter, as the server reads it.

const SERVICES = {
  ftp: 21, ssh: 22, telnet: 23, smtp: 25, dns: 53, http: 80, pop3: 110, ntp: 123, imap: 143, snmp: 161, bgp: 179, ldap: 389,
  https: 443, smb: 445, ldaps: 636, imaps: 993, mysql: 3306, rdp: 3389, postgres: 5432, redis: 6379,
};
const STATES = new Set(["established", "half_open", "syn_sent", "syn_recv", "midstream", "unsettled", "ip", "ip6"]);

const NAMES = new Map(Object.entries(SERVICES).map(([name, port]) => [port, name]));

/** The service that a port usually has. */
export function serviceOf(port) {
  return NAMES.get(port);
}

/** An IPv4 address or the beginning of one. */
function ofIpv4(word) {
  if (!/^\d{1,3}(\.\d{1,3}){0,3}\.?$/.test(word) || !word.includes(".")) return null;
  const octets = word.split(".").filter((octet) => octet !== "");
  if (octets.some((octet) => Number(octet) > 255 || String(Number(octet)) !== octet)) return null;
  if (octets.length === 4) return word.endsWith(".") ? null : word;
  return `net ${[...octets, 0, 0, 0].slice(0, 4).join(".")}/${octets.length * 8}`;
}

/** An IPv6 address or the beginning of one that ends with a colon. */
function ofIpv6(word) {
  if (!/^[0-9a-f:]+$/i.test(word) || !word.includes(":")) return null;
  const groups = word.split(":");
  if (groups.some((group) => group.length > 4) || groups.length > 9) return null;
  if (/^[0-9a-f]+(:[0-9a-f]+)*:$/i.test(word) && groups.length <= 8) {
    return `net ${word}:/${(groups.length - 1) * 16}`;
  }
  return word.includes("::") || groups.length === 8 ? word : null;
}

function ofPort(text) {
  return /^\d{1,5}$/.test(text) && Number(text) <= 65535 ? `port ${Number(text)}` : null;
}

/** A filter for one word; null if it is none of those that stand for themselves. */
function ofWord(word) {
  const lower = word.toLowerCase();
  if (STATES.has(lower)) return lower;
  if (Object.hasOwn(SERVICES, lower)) return `port ${SERVICES[lower]}`;
  const age = /^(>=|<=|>|<)((\d+(ms|s|m|h|d))+)$/.exec(lower);
  if (age) return `age ${age[1]} ${age[2]}`;
  if (/^[0-9a-f:.]+\/\d{1,3}$/.test(lower)) return lower;
  const withPort = /^(\d[\d.]*|\[[0-9a-f:]+\]|):(\d{1,5})$/.exec(lower);
  if (withPort) {
    const port = ofPort(withPort[2]);
    const host = withPort[1].replace(/[[\]]/g, "");
    if (host === "") return port;
    const end = withPort[1].startsWith("[") ? ofIpv6(host) : ofIpv4(host);
    return end && port && `${end} ${port}`;
  }
  return ofPort(lower) ?? ofIpv4(lower) ?? ofIpv6(lower);
}

/** The filter for what was typed. What is not all plain words is a filter already. */
export function toFilter(text) {
  const words = text.trim().split(/\s+/).filter((word) => word !== "");
  const tests = words.map(ofWord);
  return tests.includes(null) ? text.trim() : tests.join(" and ");
}

/** The ends that are named, each an address, or an address with a port; null if anything else is. */
export function toEnds(text) {
  const words = text.trim().split(/[\s,]+/).filter((word) => !["", "and", "client", "server", "host"].includes(word));
  const ends = words.map((word) => {
    const bare = word.replace(/^\[(.*)\]$/, "$1");
    const [, host, port] = /^(\d[\d.]*|\[[0-9a-f:]+\]):(\d{1,5})$/i.exec(word) ?? [null, bare, "0"];
    const address = host.replace(/[[\]]/g, "");
    const isAddress = ofIpv4(address) === address || ofIpv6(address) === address;
    return isAddress && ofPort(port) ? word : null;
  });
  return ends.includes(null) || ends.length > 2 ? null : ends;
}

/** A filter for both. */
export function both(one, other) {
  if (!one || !other) return one || other;
  return `${/\bor\b|\|\|/.test(one) ? `(${one})` : one} and ${other}`;
}

/** The filter that selects a connection alone. */
export function ofConnection(row) {
  const { src_ip, src_port, dest_ip, dest_port } = row;
  return `client ${src_ip} port ${src_port} and server ${dest_ip} port ${dest_port}`;
}

/** The index in characters of a place that the server names in bytes. */
export function characterAt(text, position) {
  return new TextDecoder().decode(new TextEncoder().encode(text).subarray(0, position)).length;
}

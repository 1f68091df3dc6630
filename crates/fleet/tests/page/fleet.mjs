// Looks at the page over a fleet of which one pair of routers sees one direction each, one router misses some
// connections of its twin, and one stops while the others go on. scripts/fleet-demo --look starts it.
//
// node fleet.mjs CHROMIUM URL DIRECTORY PAIR TWINS GONE
//
// PAIR and TWINS are two routers each, as a,b; of the twins the second misses connections. GONE is the router that stops.

import { run } from "./chromium.mjs";

const [chromium, base, screenshots, pair, twins, gone] = process.argv.slice(2);
const text = (value) => JSON.stringify(value);

await run(chromium, screenshots, async ({ page, value, until, press, type, picture, faultsOf, textOf }) => {
  const lines = "document.querySelectorAll('#rows tr').length";
  const found = "document.getElementById('found').textContent";
  const go = (query) => page("Page.navigate", { url: base + query });
  const pictures = async (name) => {
    await picture(name, 1280, 800, "light");
    await picture(name, 390, 844, "dark");
    await page("Emulation.clearDeviceMetricsOverride");
  };
  const seen = "[...document.querySelectorAll('#detail .tag:not(.absent)')].map((tag) => tag.textContent).join()";

  // Each connection of the pair is there once, established, with both routers and what each of them saw.
  const [one, other] = pair.split(",");
  await go(`?router=${one}&q=established`);
  await until("connections of the pair", `${lines} > 5`);
  const hasBoth = `(${seen}).includes(${text(one)}) && (${seen}).includes(${text(other)})`;
  const bothSides = `${hasBoth} && (${seen}).includes("client’s side") && (${seen}).includes("server’s side")`;
  // One may have ended before it is looked at, and of some one router alone has heard.
  for (let at = 0; at < 20 && !(await value(bothSides)); at += 1) {
    await press("ArrowDown");
    await press("Enter");
    await new Promise((done) => setTimeout(done, 500));
  }
  await until("both sides of one", bothSides);
  await until("it is open", "document.querySelector('#detail .state.established') !== null");
  const ofPair = await value(`fetch("/api/v1/connections?limit=1000&filter=established&router=${one}").then((answer) => answer.json()).then(({ connections }) => {
    const name = ({ src_ip, src_port, dest_ip, dest_port }) => [src_ip, src_port, dest_ip, dest_port].join(" ");
    return { count: connections.length, once: new Set(connections.map(name)).size, ofBoth: connections.filter(({ routers }) => [...routers].sort().join() === ${text(pair.split(",").sort().join())}).length };
  })`);
  await pictures("pair");

  // What one of the twins misses is in the view of what one tap alone sees, and names the other.
  const [sees, misses] = twins.split(",");
  await go(`?view=one&router=${sees}`);
  await until("what one tap alone sees", `${lines} > 0 && ${found}.includes("one router only")`);
  await press("ArrowDown");
  await press("Enter");
  await until("who sees it, and who does not", `(${seen}) === ${text(sees)} && [...document.querySelectorAll('#detail .absent')].some((tag) => tag.textContent === ${text(misses)})`);
  await pictures("one-tap");

  // A router that was killed turns late, and then gone, while the others report.
  const health = (name) => `[...document.querySelectorAll('#rows tr')].find((row) => row.cells[0].textContent === ${text(name)})?.querySelector('.health').textContent`;
  const reporting = "document.querySelectorAll('#rows .health.reporting').length";
  await go("?view=routers");
  const course = {};
  for (const state of ["late", "gone"]) {
    await until(`${gone} is ${state}`, `${health(gone)} === ${text(state)}`);
    course[state] = await value(reporting);
    await until("the banner says so", `document.getElementById('banner')?.hidden === false && document.getElementById('banner').textContent.includes(${text(`${gone} is ${state}`)})`);
    await pictures(`routers-${state}`);
  }
  await go(`?router=${gone}`);
  await until("a reason why nothing of it is there", `${lines} === 0 && document.getElementById('empty')?.hidden === false`);
  const empty = await value("document.getElementById('empty').innerText");
  await pictures("gone");
  // There is no archive that could be asked for what was before.
  return { ofPair, course, empty, faults: faultsOf().map(textOf).filter((text) => !text.includes("status of 404")) };
});

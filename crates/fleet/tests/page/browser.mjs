// Goes through the page in headless Chromium.
//
// node browser.mjs CHROMIUM URL [DIRECTORY FOR SCREENSHOTS]
//
// FLOWPEEL_AXE: the file axe.min.js of axe-core, which checks each view. FLOWPEEL_TOKEN: the token that the page asks
// for; then that it is asked for once is all that is looked at.

import { readFileSync } from "node:fs";
import { run } from "./chromium.mjs";

const [chromium, base, screenshots] = process.argv.slice(2);
const { FLOWPEEL_AXE: axe, FLOWPEEL_TOKEN: token } = process.env;

await run(chromium, screenshots, async ({ page, value, until, press, type, picture, reports, faultsOf, textOf }) => {
  const objections = [];
  /** What axe-core objects to in what is shown, if it is more than a matter of taste. */
  const check = async (name) => {
    if (!axe) return;
    await value(`${readFileSync(axe, "utf8")}; 0`);
    const found = await value("axe.run(document, { resultTypes: ['violations'] }).then((result) => JSON.stringify(result.violations))");
    for (const { id, impact, nodes } of JSON.parse(found)) {
      if (["serious", "critical"].includes(impact)) objections.push(`${name}: ${id}: ${nodes[0].html}`);
    }
  };
  const pictures = async (name) => {
    await check(name);
    for (const [width, height] of [[1280, 800], [390, 844]]) {
      for (const scheme of ["light", "dark"]) await picture(name, width, height, scheme);
    }
    await page("Emulation.clearDeviceMetricsOverride");
  };
  const lines = "document.querySelectorAll('#rows tr').length";
  if (token) {
    await page("Page.navigate", { url: base });
    await until("the page asks", "document.getElementById('sign-in')?.open && document.activeElement.id === 'token'");
    await check("sign in");
    await type("not this one");
    await press("Enter");
    await until("a wrong one is refused", "document.getElementById('sign-in-fault').textContent.includes('letters')");
    await value("document.getElementById('token').select()");
    await type(`x${token}`);
    await press("Enter");
    await until("another is refused", "document.getElementById('sign-in-fault').textContent.includes('not the token')");
    await value("document.getElementById('token').select()");
    await type(token);
    await press("Enter");
    await until("connections", `${lines} > 20 && !document.getElementById('sign-in').open`);
    await page("Page.navigate", { url: `${base}?view=routers` });
    await until("it is not asked for again", "document.querySelectorAll('.health').length > 1 && !document.getElementById('sign-in')?.open");
    const kept = await value("document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage }).slice(1, -1) + document.getElementById('token').value");
    return { kept, faults: faultsOf().map(textOf).filter((text) => !text.includes("status of 401")).concat(objections) };
  }
  const found = "document.getElementById('found').textContent";

  await page("Page.navigate", { url: base });
  await until("connections", `${lines} > 20 && document.querySelector('.state.established') !== null`);
  const total = await value(found);
  await pictures("connections");
  await press("/");
  await until("the search has the focus", "document.activeElement.id === 'words'");
  await type("https");
  await until("the search has its result", `${found} !== ${JSON.stringify(total)} && ${found}.includes('filter: port 443') && ${lines} > 0`);
  await press("ArrowDown");
  await press("Enter");
  await until("a connection is open beside the table", "!document.getElementById('detail').hidden && document.querySelector('#detail dl') !== null");
  await until("its life is there", "document.querySelector('#detail .life .bar') !== null");
  await pictures("connection");
  await press("Escape");
  await until("it is closed", "document.getElementById('detail').hidden && document.activeElement.matches('#rows tr')");
  await press("Escape");
  await until("the search is cleared", `document.getElementById('words').value === '' && ${found} === ${JSON.stringify(total)}`);
  await press("g");
  await until("groups by client", `${found}.includes('group') && document.getElementById('group').value === 'client' && ${lines} > 0`);
  await pictures("groups");
  await press("ArrowDown");
  await press("Enter");
  await until("a group is open", "document.getElementById('words').value.startsWith('client ') && document.getElementById('group').value === ''");
  await press("3");
  await until("the routers", "document.querySelectorAll('.health').length > 0");
  await pictures("routers");
  await press("2");
  await until("what one tap sees", `${found}.includes('one router only')`);
  await pictures("one");
  await press("Escape");
  await until("nothing is searched for", "document.getElementById('words').value === ''");
  await press("4");
  await until("charts", "document.querySelectorAll('.chart svg').length === 4");
  await pictures("history");
  await value("document.querySelector('.chart [role=slider]').focus()");
  const told = "document.activeElement.getAttribute('aria-valuetext')";
  const latest = await value(told);
  await press("ArrowLeft");
  await until("the step before", `${told} !== ${JSON.stringify(latest)} && ${told}.includes('open')`);
  await press("End");
  await until("the last step", `${told} === ${JSON.stringify(latest)}`);
  for (let at = 0; at < 4; at += 1) await press("Tab");
  await until("the figures have the focus", "document.activeElement.matches('summary')");
  await press("Enter", "\r");
  await until("the figures as a table", "document.querySelectorAll('.figures tbody tr').length > 3");
  await check("figures");
  const server = await value("fetch('/api/v1/connections?group=server&limit=1').then((answer) => answer.json()).then((answer) => answer.groups[0].value)");
  await press("/");
  await type(server);
  await until("what an address had", `${lines} > 1 && ${found}.includes('archives') && document.querySelectorAll('#rows .ending.fin, #rows .ending.open').length > 0`);
  await press("ArrowDown");
  await press("Enter");
  await until("one of the past is open", "document.querySelector('#detail .ending') !== null && document.querySelector('#detail .course .note, #detail .life') !== null");
  await pictures("past");
  await press("Escape");
  await until("it is closed too", "document.getElementById('detail').hidden");
  await press("1");
  await until("what is open of the address", `document.getElementById('words').value === ${JSON.stringify(server)} && ${lines} > 0`);
  await press("Escape");
  await press("?");
  await until("the help", "document.getElementById('help').open");
  await press("Escape");
  await until("no help", "!document.getElementById('help').open");
  await page("Page.navigate", { url: `${base}?q=client+prot+443` });
  await until("the mark under the mistake", "document.getElementById('mark')?.textContent.includes('\\n         ^')");
  await check("mark");
  await page("Page.navigate", { url: `${base}?sort=-age` });
  await until("sorted by the address", `${lines} > 20 && document.querySelector('th[aria-sort=descending]') !== null`);
  await value("document.querySelector('#more').scrollIntoView()");
  await until("more lines as one scrolls", `${lines} > 100`);

  const markup = await value("document.querySelectorAll('main img, main script, main iframe, main a').length");
  const unnamed = await value(`[...document.querySelectorAll('button, input, select, a')].filter((one) =>
    !one.textContent.trim() && !one.getAttribute('aria-label') && !one.labels?.length).map((one) => one.outerHTML)`);
  const outside = reports.filter(({ method, params }) => method === "Network.requestWillBeSent" && !params.request.url.startsWith(base) && params.request.url !== "about:blank");
  return {
    markup,
    unnamed,
    outside: outside.map(({ params }) => params.request.url),
    objections,
    // The filter that is none was refused, as it had to be.
    faults: faultsOf().map(textOf).filter((text) => !text.includes("status of 400")),
  };
});

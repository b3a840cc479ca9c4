/* Adds a list of the versions of this site to the sidebar, where several are side by side. */
"use strict";

(() => {
  const root = document.documentElement.dataset.content_root || "./";
  const here = new URL(root, location.href);
  const page = location.href.slice(here.href.length).split("#")[0];

  function add() {
    const name = here.pathname.split("/").at(-2);
    const label = document.createElement("label");
    const list = document.createElement("select");
    label.className = "weft-versions";
    label.append("Version ", list);
    for (const version of window.WEFT_VERSIONS) {
      list.add(new Option(version.name, version.name, false, version.name === name));
    }
    list.addEventListener("change", () => {
      const version = window.WEFT_VERSIONS.find((one) => one.name === list.value);
      const known = version.pages.includes(page);
      location.href = new URL(`../${version.name}/${known ? page : "index.html"}`, here).href;
    });
    document.querySelector(".sidebar-search-container")?.after(label);
  }

  window.addEventListener("DOMContentLoaded", () => {
    const script = document.createElement("script");
    script.src = new URL("../versions.js", here).href;
    script.addEventListener("load", add);
    document.head.append(script);
  });
})();

({
  // Text whose contrast with what is behind it is below 4.5 (WCAG 2.2, 1.4.3).
  unreadable() {
    const parse = (text) => text.match(/[\d.]+/g).map(Number);
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = (rgb) => {
      const [r, g, b] = rgb.map((v) => linear(v / 255));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (one) => {
      for (let at = one; at; at = at.parentElement) {
        const found = parse(getComputedStyle(at).backgroundColor);
        if (found.length < 4 || found[3] > 0) return found;
      }
      return [255, 255, 255];
    };
    const bad = [];
    for (const one of document.querySelectorAll("body *")) {
      const own = [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
      if (!own || one.closest("svg, dialog, noscript, button:disabled, .skip")) continue;
      const [a, b] = [light(parse(getComputedStyle(one).color)), light(behind(one))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < 4.5) bad.push(`${one.tagName} ${one.className} ${ratio.toFixed(2)} ${one.innerText}`);
    }
    return bad;
  },
  // What can be used or stands for something, and has no name for those who do not see it.
  nameless() {
    const all = "main button, main a, main input, main select, nav a, svg[role=img]";
    return [...document.querySelectorAll(all)]
      .filter((one) => !(one.textContent || "").trim())
      .filter((one) => !one.getAttribute("aria-label") && !one.closest("label"))
      .map((one) => one.outerHTML.slice(0, 120));
  },
})

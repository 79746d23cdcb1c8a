// Measures the open page. All boxes are in CSS pixels.
//   width, scrollWidth, height   of the window, of the content, of the page
//   paper, ink                   colors of the body
//   charts      box, number of shapes, and texts of each chart
//   overlaps    pairs of texts that cover each other
//   outside     texts that leave the window or their chart
//   small       texts that are less than 8 pixels high
(() => {
  const root = document.documentElement;
  const boxOf = rect => ({left: rect.left, top: rect.top, right: rect.right, bottom: rect.bottom});
  const cut = (box, by) => ({
    left: Math.max(box.left, by.left), top: Math.max(box.top, by.top),
    right: Math.min(box.right, by.right), bottom: Math.min(box.bottom, by.bottom),
  });
  const everything = {left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity};

  // The part of the page in which the content of an element can be seen.
  const clips = new Map([[null, everything]]);
  const clipOf = element => {
    if (!clips.has(element)) {
      let clip = clipOf(element.parentElement);
      const style = getComputedStyle(element), isPage = element === root || element === document.body;
      if (!isPage && (style.overflowX !== "visible" || style.overflowY !== "visible")) {
        const box = boxOf(element.getBoundingClientRect());
        if (style.overflowX === "visible") { box.left = -Infinity; box.right = Infinity; }
        if (style.overflowY === "visible") { box.top = -Infinity; box.bottom = Infinity; }
        clip = cut(clip, box);
      }
      clips.set(element, clip);
    }
    return clips.get(element);
  };
  const isShown = element =>
    element.checkVisibility({opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true});
  const isFolded = node => { // text directly in <details> has a visible parent
    const details = node.parentElement.closest("details:not([open])");
    return details && !details.querySelector("summary").contains(node);
  };

  // One entry for each line of text: {words, box, source}.
  const texts = [], outside = [], small = [];
  const add = (words, rect, source) => {
    const box = cut(boxOf(rect), clipOf(source.parentElement));
    if (box.right - box.left > 0.5 && box.bottom - box.top > 0.5) texts.push({words, box, source});
    if (rect.height < 8) small.push(words);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const words = node.data.trim(), parent = node.parentElement;
    if (!words || parent.closest("script, style, option, svg") || !isShown(parent) || isFolded(node)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) add(words.slice(0, 60), rect, node);
  }
  const charts = [];
  for (const svg of document.querySelectorAll("figure .plot > svg")) {
    if (!isShown(svg)) continue;
    const box = boxOf(svg.getBoundingClientRect()), labels = [];
    for (const text of svg.querySelectorAll("text")) {
      if (!text.textContent.trim() || !isShown(text)) continue;
      const rect = text.getBoundingClientRect();
      labels.push(text.textContent);
      add(text.textContent, rect, text);
      if (rect.left < box.left - 1 || rect.right > box.right + 1 || rect.top < box.top - 1 || rect.bottom > box.bottom + 1)
        outside.push(text.textContent);
    }
    charts.push({box, shapes: svg.querySelectorAll("path, use, rect, circle, line, polyline").length, labels});
  }
  for (const {words, box} of texts) if (box.left < -1 || box.right > root.clientWidth + 1) outside.push(words);

  texts.sort((first, second) => first.box.top - second.box.top);
  const overlaps = [];
  texts.forEach((upper, place) => {
    for (let next = place + 1; next < texts.length && texts[next].box.top < upper.box.bottom; ++next) {
      const lower = texts[next], shared = cut(upper.box, lower.box);
      const height = Math.min(upper.box.bottom - upper.box.top, lower.box.bottom - lower.box.top);
      if (upper.source !== lower.source && shared.right - shared.left > 2 && shared.bottom - shared.top > height / 4)
        overlaps.push([upper.words, lower.words]);
    }
  });
  const body = getComputedStyle(document.body);
  return {
    width: root.clientWidth, scrollWidth: root.scrollWidth, height: root.scrollHeight,
    paper: body.backgroundColor, ink: body.color, charts, overlaps, outside, small,
  };
})()

"use strict";
// Values under the pointer, zoom, and a legend that hides series. Without this script, a chart is a picture.
const SVG = "http://www.w3.org/2000/svg";
const NEAR = 24; // distance up to which a mark is shown, in units of the SVG
const MIN_DRAG = 6;
const STEP = 1.6; // factor of one step of the zoom

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.svg = figure.querySelector(".plot > svg");
    this.hidden = new Set();
    this.stop = -1; // point that the arrow keys selected
    this.tip = addElement(figure.querySelector(".plot"), "div", {class: "tip", role: "status", hidden: ""});
    this.focus = addSvg(this.svg, "g", {class: "focus"});
    this.brush = addSvg(this.svg, "rect", {class: "brush", visibility: "hidden"});
    this.ticks = addSvg(this.svg, "g", {class: "zoom-ticks"});
    this.addControls();
    this.addPointer();
    this.addKeys();
  }

  get data() {
    this.parsed ??= JSON.parse(this.figure.querySelector("script").textContent);
    return this.parsed;
  }

  // Zoom: a place p of the picture is shown at scale * p + shift, for x and for y.
  get zoom() {
    this.zoomed ??= {x: [1, 0], y: [1, 0]};
    return this.zoomed;
  }

  isZoomed() { return this.zoom.x[0] !== 1 || this.zoom.y[0] !== 1; }

  shown(x, y) {
    const {x: [scaleX, shiftX], y: [scaleY, shiftY]} = this.zoom;
    return [scaleX * x + shiftX, scaleY * y + shiftY];
  }

  edges(axis) {
    const [left, top, right, bottom] = this.data.box;
    return axis === "x" ? [left, right] : [top, bottom];
  }

  setZoom(axis, from, to) { // the places from and to come to the edges of the axis
    if (axis === "y" && this.data.rows) return;
    const [first, last] = this.edges(axis);
    let scale = (last - first) / Math.max(to - from, 1e-3);
    if (scale <= 1.001) { this.zoom[axis] = [1, 0]; return; }
    const start = Math.min(Math.max(from, first), last - (last - first) / scale);
    this.zoom[axis] = [scale, first - scale * start];
  }

  step(factor) { // around the selected point, or the middle
    for (const axis of ["x", "y"]) {
      const [first, last] = this.edges(axis), [scale, shift] = this.zoom[axis];
      const center = this.center?.[axis] ?? ((first + last) / 2 - shift) / scale;
      const half = (last - first) / 2 / (scale * factor);
      this.setZoom(axis, center - half, center + half);
    }
    this.draw();
  }

  reset() {
    this.zoomed = {x: [1, 0], y: [1, 0]};
    this.draw();
  }

  draw() {
    const {x: [scaleX, shiftX], y: [scaleY, shiftY]} = this.zoom;
    this.svg.classList.toggle("zoomed", this.isZoomed());
    for (const path of this.svg.querySelectorAll(".moving > path, .moving > g > path")) {
      path.setAttribute("transform", `matrix(${scaleX} 0 0 ${scaleY} ${shiftX} ${shiftY})`);
    }
    for (const place of this.svg.querySelectorAll(".moving use, .moving text")) {
      const x = Number(place.getAttribute("x")), y = Number(place.getAttribute("y"));
      const axis = place.closest(".moving").dataset.axis; // the name of a line keeps its place along the line
      const [toX, toY] = this.shown(x, y);
      place.setAttribute("transform", `translate(${axis === "y" ? 0 : toX - x} ${axis === "x" ? 0 : toY - y})`);
    }
    for (const name of this.svg.querySelectorAll(".line-name")) {
      const text = name.querySelector("text"), axis = name.dataset.axis, [first, last] = this.edges(axis);
      const place = this.shown(Number(text.getAttribute("x")), Number(text.getAttribute("y")))[axis === "x" ? 0 : 1];
      name.style.visibility = this.isZoomed() && (place < first || place > last) ? "hidden" : "";
    }
    this.ticks.replaceChildren();
    if (this.isZoomed()) for (const axis of ["x", "y"]) this.drawTicks(axis);
    this.out.disabled = this.back.disabled = !this.isZoomed();
    this.select([]);
  }

  value(axis, place) { // value of the axis at a place of the picture
    const [low, high, isLog] = this.data[axis], [first, last] = this.edges(axis);
    const share = axis === "x" ? (place - first) / (last - first) : (last - place) / (last - first);
    return isLog ? low * (high / low) ** share : low + share * (high - low);
  }

  place(axis, value) {
    const [low, high, isLog] = this.data[axis], [first, last] = this.edges(axis);
    const share = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return axis === "x" ? first + share * (last - first) : last - share * (last - first);
  }

  drawTicks(axis) {
    if (axis === "y" && this.data.rows) return;
    const [left, top, right, bottom] = this.data.box, [scale, shift] = this.zoom[axis], [first, last] = this.edges(axis);
    const ends = [first, last].map(edge => this.value(axis, (edge - shift) / scale)).sort((a, b) => a - b);
    for (const value of ticksBetween(...ends, this.data[axis][2])) {
      const at = scale * this.place(axis, value) + shift;
      const line = axis === "x" ? {x1: at, x2: at, y1: top, y2: bottom} : {x1: left, x2: right, y1: at, y2: at};
      addSvg(this.ticks, "line", line);
      const text = axis === "x" ? {x: at, y: bottom + 13, "text-anchor": "middle"}
        : {x: left - 4, y: at + 3.5, "text-anchor": "end"};
      addSvg(this.ticks, "text", text).textContent = value.toLocaleString("en", {maximumSignificantDigits: 5});
    }
  }

  // Points ------------------------------------------------------------------------------------------------------

  *visible() {
    const [left, top, right, bottom] = this.data.box;
    for (const [number, series] of this.data.series.entries()) {
      if (this.hidden.has(number)) continue;
      for (const [x, y, text] of series.points) {
        const [toX, toY] = this.shown(x, y);
        const isInside = toX >= left - 1 && toX <= right + 1 && toY >= top - 1 && toY <= bottom + 1;
        if (isInside || series.curve) yield {number, series, x, y, toX, toY, text};
      }
    }
  }

  near(x, y) { // the nearest mark, or the nearest point of each curve
    let best = null;
    const curves = new Map();
    for (const point of this.visible()) {
      if (point.series.curve) {
        const nearest = curves.get(point.number);
        if (!nearest || Math.abs(point.toX - x) < Math.abs(nearest.toX - x)) curves.set(point.number, point);
      } else {
        const distance = Math.hypot(point.toX - x, point.toY - y);
        if (distance <= NEAR && distance < (best?.distance ?? Infinity)) best = {...point, distance};
      }
    }
    return best ? [best] : [...curves.values()];
  }

  select(points) {
    this.focus.replaceChildren();
    const [left, top, right, bottom] = this.data.box;
    for (const {toX, toY} of points) {
      if (toX >= left - 1 && toX <= right + 1 && toY >= top - 1 && toY <= bottom + 1) {
        addSvg(this.focus, "circle", {cx: toX, cy: toY, r: 5});
      }
    }
    this.tip.hidden = points.length === 0;
    if (!points.length) return;
    this.center = {x: points[0].x, y: points[0].y};
    this.tip.replaceChildren(...points.flatMap(({series, text}, place) => {
      const name = document.createElement("b");
      name.textContent = this.data.series.length > 1 && series.name ? `${series.name}: ` : "";
      return [...(place ? [document.createElement("br")] : []), name, text];
    }));
    const box = this.svg.getBoundingClientRect(), scale = box.width / this.svg.viewBox.baseVal.width;
    const x = Math.min(Math.max(points[0].toX * scale - this.tip.offsetWidth / 2, 0), box.width - this.tip.offsetWidth);
    const y = points[0].toY * scale, above = y - this.tip.offsetHeight - 12;
    this.tip.style.left = `${Math.max(x, 0)}px`;
    this.tip.style.top = `${above > -20 ? above : y + 14}px`;
  }

  // Input -------------------------------------------------------------------------------------------------------

  addControls() {
    const controls = addElement(this.figure.querySelector("figcaption"), "span", {class: "controls"});
    const title = this.figure.querySelector("figcaption b").textContent;
    const button = (text, label, action) => {
      const made = addElement(controls, "button", {type: "button", "aria-label": `${label}: ${title}`, title: label});
      made.textContent = text;
      made.addEventListener("click", action);
      return made;
    };
    button("+", "zoom in", () => this.step(STEP));
    this.out = button("−", "zoom out", () => this.step(1 / STEP));
    this.back = button("↺", "reset the zoom", () => this.reset());
    this.out.disabled = this.back.disabled = true;
    for (const entry of this.figure.querySelectorAll(".legend button")) {
      entry.addEventListener("click", () => {
        const number = Number(entry.dataset.series), isHidden = !this.hidden.delete(number);
        if (isHidden) this.hidden.add(number);
        entry.setAttribute("aria-pressed", String(!isHidden));
        for (const group of this.svg.querySelectorAll(`[data-series="${number}"]`)) group.classList.toggle("off", isHidden);
        this.select([]);
      });
    }
  }

  at(event) {
    const {x, y} = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    return [x, y];
  }

  addPointer() {
    let start = null;
    this.svg.addEventListener("pointerdown", event => {
      const [x, y] = this.at(event), [left, top, right, bottom] = this.data.box;
      if (event.pointerType === "touch") { this.select(this.near(x, y)); return; }
      if (event.button || x < left || x > right || y < top || y > bottom) return;
      start = [x, y];
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", event => {
      const [x, y] = this.at(event);
      if (!start) { this.select(this.near(x, y)); return; }
      const [[fromX, toX], [fromY, toY]] = this.dragged(start, [x, y]);
      for (const [name, value] of Object.entries({x: fromX, y: fromY, width: toX - fromX, height: toY - fromY})) {
        this.brush.setAttribute(name, value);
      }
      this.brush.setAttribute("visibility", "visible");
    });
    const end = event => {
      if (!start) return;
      const ranges = this.dragged(start, this.at(event));
      start = null;
      this.brush.setAttribute("visibility", "hidden");
      if (ranges.every(([from, to]) => to - from < MIN_DRAG)) return;
      for (const [place, axis] of ["x", "y"].entries()) {
        const [scale, shift] = this.zoom[axis], [from, to] = ranges[place];
        if (to - from >= MIN_DRAG) this.setZoom(axis, (from - shift) / scale, (to - shift) / scale);
      }
      this.draw();
    };
    this.svg.addEventListener("pointerup", end);
    this.svg.addEventListener("pointercancel", () => { start = null; this.brush.setAttribute("visibility", "hidden"); });
    this.svg.addEventListener("pointerleave", event => {
      if (!start && event.pointerType !== "touch") this.select([]);
    });
    this.svg.addEventListener("dblclick", () => this.reset());
  }

  dragged(start, end) {
    return ["x", "y"].map((axis, place) => {
      const [first, last] = this.edges(axis), ends = [start[place], end[place]].sort((a, b) => a - b);
      return ends.map(value => Math.min(Math.max(value, first), last));
    });
  }

  addKeys() {
    this.svg.setAttribute("tabindex", "0");
    this.svg.addEventListener("keydown", event => {
      const steps = {ArrowRight: 1, ArrowLeft: -1};
      if (event.key in steps) {
        const points = [...this.visible()].sort((a, b) => a.toX - b.toX || a.toY - b.toY);
        if (!points.length) return;
        this.stop = Math.min(Math.max(this.stop + steps[event.key], 0), points.length - 1);
        const point = points[this.stop];
        this.select(point.series.curve ? this.near(point.toX, point.toY) : [point]);
      } else if (event.key === "+") this.step(STEP);
      else if (event.key === "-") this.step(1 / STEP);
      else if (event.key === "0" || event.key === "Escape") this.reset();
      else return;
      event.preventDefault();
    });
    this.svg.addEventListener("blur", () => this.select([]));
  }
}

function ticksBetween(low, high, isLog) {
  if (isLog && high / low > 4) {
    const steps = high / low > 200 ? [1] : [1, 2, 5], values = [];
    for (let decade = 10 ** Math.floor(Math.log10(low)); decade <= high; decade *= 10) {
      for (const step of steps) if (step * decade >= low && step * decade <= high) values.push(step * decade);
    }
    return values;
  }
  const rough = (high - low) / 5, decade = 10 ** Math.floor(Math.log10(rough));
  const size = decade * [1, 2, 5, 10].find(factor => factor * decade >= rough);
  const first = Math.ceil(low / size);
  return Array.from({length: Math.floor(high / size) - first + 1}, (_, place) => (first + place) * size);
}

function addElement(parent, tag, attributes) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return parent.appendChild(element);
}

function addSvg(parent, tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return parent.appendChild(element);
}

for (const figure of document.querySelectorAll("figure.chart")) new Chart(figure);

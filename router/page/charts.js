// Lines over time, drawn anew whenever a point comes.
import {element, svg} from "./dom.js";

const WIDTH = 420, HEIGHT = 150, LEFT = 54, BOTTOM = 20, TOP = 8, RIGHT = 6;
const SPAN = 300, FIRST_SPAN = 60;  // seconds: as long as there is that much to show

function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= value);
}

export class Chart {
  // series: [name, name]; show: how a value reads.
  constructor(title, series, show) {
    this.series = series;
    this.show = show;
    this.points = [];  // {at: seconds, values: [number | null, ...]}
    this.legends = series.map((name) => element("i", {}, name));
    this.plot = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title});
    this.figure = element("figure", {"data-chart": title}, element("figcaption", {}, element("b", {}, title), ...this.legends), this.plot);
    this.plot.addEventListener("pointermove", (event) => {
      const box = this.plot.getBoundingClientRect();
      this.draw((event.clientX - box.left) / box.width * WIDTH);
    });
    this.plot.addEventListener("pointerleave", () => this.draw());
  }

  add(at, values) {
    this.points.push({at, values});
    while (this.points.length > 0 && this.points[0].at < at - SPAN) this.points.shift();
    this.draw();
  }

  clear() {
    this.points = [];
    this.draw();
  }

  legend(point) {
    this.series.forEach((name, i) => {
      const value = point?.values[i];
      this.legends[i].textContent = value === null || value === undefined ? name : `${name} ${this.show(value)}`;
    });
  }

  draw(pointer = null) {
    const now = this.points.length > 0 ? this.points[this.points.length - 1].at : 0;
    const top = niceTop(Math.max(...this.points.flatMap((p) => p.values.map((v) => v ?? 0)), 0));
    const span = Math.min(SPAN, Math.max(FIRST_SPAN, now - (this.points[0]?.at ?? now)));
    const x = (at) => LEFT + (1 - (now - at) / span) * (WIDTH - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      parts.push(svg("line", {class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(share * top), y2: y(share * top)}));
      const label = share === 0 ? "0" : this.show(share * top);
      parts.push(svg("text", {x: LEFT - 5, y: y(share * top) + 4, "text-anchor": "end"}, label));
    }
    const step = span > 120 ? 120 : 30;
    for (let back = 0; back < span; back += step) {
      const text = back === 0 ? "now" : back < 120 ? `−${back} s` : `−${back / 60} min`;
      parts.push(svg("text", {x: x(now - back), y: HEIGHT - 5, "text-anchor": back === 0 ? "end" : "middle"}, text));
    }
    this.series.forEach((_, i) => parts.push(...this.line(i, x, y)));
    let told = [...this.points].reverse().find((p) => p.values.some((v) => v !== null));
    if (pointer !== null && this.points.length > 0) {
      told = this.points.reduce((a, b) => (Math.abs(x(b.at) - pointer) < Math.abs(x(a.at) - pointer) ? b : a));
      parts.push(svg("line", {class: "cross", x1: x(told.at), x2: x(told.at), y1: TOP, y2: HEIGHT - BOTTOM}));
    }
    this.legend(told);
    this.plot.replaceChildren(...parts);
  }

  line(i, x, y) {
    const kind = i === 0 ? "a" : "b";
    const parts = [];
    let path = "";
    let run = 0;
    const end = (last) => {
      if (run === 1) parts.push(svg("circle", {class: `dot ${kind}`, cx: x(last.at), cy: y(last.values[i]), r: 2.5}));
      run = 0;
    };
    this.points.forEach((point, n) => {
      if (point.values[i] === null) return end(this.points[n - 1]);
      path += `${run++ === 0 ? "M" : "L"}${x(point.at).toFixed(1)} ${y(point.values[i]).toFixed(1)}`;
    });
    if (run > 0) end(this.points[this.points.length - 1]);
    if (path) parts.push(svg("path", {class: `line ${kind}`, d: path}));
    return parts;
  }
}

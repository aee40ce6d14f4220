"use strict";
(() => {
  const PAPER = { width: 690, share_of_height: 0.72 };
  const slots = [...document.querySelectorAll(".plot[data-figure]")];
  const drawn = new Set();
  let onPaper = false;
  const options = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };

  // Figures name CSS variables instead of colours; give each its value in the theme of the moment.
  function resolved(value, style) {
    if (typeof value === "string") {
      const name = /^var\((--[\w-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => resolved(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolved(item, style)]));
    }
    return value;
  }

  function draw(slot) {
    const source = JSON.parse(document.getElementById(`figure-${slot.dataset.figure}`).textContent);
    const figure = resolved(source, getComputedStyle(document.documentElement));
    figure.layout.uirevision = "kept";
    if (onPaper) {
      figure.layout.width = PAPER.width;
      figure.layout.height *= PAPER.share_of_height;
    }
    drawn.add(slot);
    return Plotly.react(slot, figure.data, figure.layout, options);
  }

  const redraw = () => drawn.forEach(draw);

  // Printing may come with a change of theme of its own, so what is drawn depends on this state alone.
  function setPaper(yes) {
    onPaper = yes;
    document.documentElement.classList.toggle("paper", yes);
    slots.filter((slot) => yes || drawn.has(slot)).forEach(draw);
  }

  const watcher = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
      watcher.unobserve(entry.target);
      draw(entry.target);
    }),
    { rootMargin: "400px" },
  );
  slots.forEach((slot) => watcher.observe(slot));

  document.querySelectorAll("button[data-axis]").forEach((button) => {
    button.addEventListener("click", () => {
      const slot = document.querySelector(`.plot[data-figure="${button.dataset.of}"]`);
      const axis = button.dataset.axis;
      const type = slot.layout[axis].type === "log" ? "linear" : "log";
      const ticks = type === "log" ? "array" : "auto";
      Plotly.relayout(slot, { [`${axis}.type`]: type, [`${axis}.tickmode`]: ticks, [`${axis}.autorange`]: true });
    });
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => setPaper(true));
  addEventListener("afterprint", () => setPaper(false));
})();

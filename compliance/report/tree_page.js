"use strict";
const causes = [...document.querySelectorAll(".cause")];
const [who, cause, weight, words] = ["who", "cause", "weight", "words"].map(id => document.getElementById(id));
const shown = document.getElementById("shown");
function filter(event) {
  const wanted = words.value.toLowerCase(), isFiltered = Boolean(who.value || cause.value || wanted);
  let count = 0, total = 0;
  for (const group of causes) {
    let inGroup = 0;
    const fits = (!cause.value || group.dataset.cause === cause.value) && (!weight.value || group.dataset.weight === weight.value);
    for (const finding of group.querySelectorAll(".finding")) {
      const text = finding.querySelector("p").textContent.toLowerCase();
      let inFinding = 0;
      for (const place of finding.querySelectorAll("li")) {
        ++total;
        place.hidden = !(fits && (!who.value || place.dataset.who === who.value)
          && (!wanted || text.includes(wanted) || place.textContent.toLowerCase().includes(wanted)));
        inFinding += !place.hidden;
      }
      finding.hidden = !inFinding;
      inGroup += inFinding;
    }
    group.hidden = !inGroup;
    if (event) group.open = isFiltered;
    count += inGroup;
  }
  shown.textContent = `${count.toLocaleString("en")} of ${total.toLocaleString("en")} findings`;
}
for (const control of [who, cause, weight, words]) control.addEventListener("input", filter);
for (const link of document.querySelectorAll("[data-pick]")) link.addEventListener("click", event => {
  who.value = link.dataset.who || "";
  cause.value = link.dataset.cause || "";
  weight.value = words.value = "";
  filter(event);
});
document.getElementById("filters").hidden = false;
filter();

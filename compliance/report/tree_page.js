"use strict";
const findings = [...document.querySelectorAll(".finding")];
const [who, cause, weight, words] = ["who", "cause", "weight", "words"].map(id => document.getElementById(id));
const shown = document.getElementById("shown");
function filter() {
  const wanted = words.value.toLowerCase();
  let count = 0;
  for (const one of findings) {
    const of = one.dataset;
    one.hidden = !((!who.value || of.who === who.value) && (!cause.value || of.cause === cause.value)
      && (!weight.value || of.weight === weight.value) && (!wanted || one.textContent.toLowerCase().includes(wanted)));
    count += !one.hidden;
  }
  shown.textContent = `${count} of ${findings.length} findings`;
}
for (const one of [who, cause, weight, words]) one.addEventListener("input", filter);
for (const link of document.querySelectorAll("[data-pick]")) link.addEventListener("click", () => {
  who.value = link.dataset.who || "";
  cause.value = link.dataset.cause || "";
  weight.value = words.value = "";
  filter();
});
document.getElementById("filters").hidden = false;
filter();

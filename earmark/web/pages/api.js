// The API's description for people, from /openapi.json alone.

import { ask, el } from "./dom.js";

const named = (schema) => (schema.$ref ? schema.$ref.split("/").pop() : "");

/** A schema in a few words: "integer, 1 to 500". */
function kind(schema) {
  if (named(schema)) return named(schema);
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.type === "array") return `list of ${kind(schema.items || schema.prefixItems?.[0] || {})}`;
  const least = schema.minimum ?? schema.exclusiveMinimum;
  const most = schema.maximum ?? schema.exclusiveMaximum;
  const range = least !== undefined ? `, ${least} ${most !== undefined ? `to ${most}` : "or more"}` : "";
  return `${schema.format === "binary" ? "bytes" : schema.type || "anything"}${range}`;
}

function table(heads, rows) {
  if (!rows.length) return "";
  const head = el("tr", {}, ...heads.map((each) => el("th", { scope: "col" }, each)));
  const body = rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell))));
  return el("div", { className: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
}

function route(path, method, about) {
  const given = (about.parameters || []).map((each) => [
    el("code", {}, each.name),
    kind(each.schema),
    `${each.required ? "needed" : each.schema.default !== undefined ? JSON.stringify(each.schema.default) : ""}`,
    each.description || "",
  ]);
  const body = Object.entries(about.requestBody?.content || {}).map(([type, { schema }]) => `${type}: ${kind(schema)}`);
  const answer = Object.entries(about.responses["200"]?.content || {})
    .filter(([, { schema }]) => schema && Object.keys(schema).length)
    .map(([, { schema }]) => kind(schema));
  return el(
    "section",
    { className: "route" },
    el("h2", {}, el("code", {}, `${method.toUpperCase()} ${path}`)),
    el("p", {}, about.description || about.summary || ""),
    table(["parameter", "is", "default", "meaning"], given),
    body.length ? el("p", {}, `Takes ${body.join(", ")}.`) : "",
    answer.length ? el("p", {}, `Gives ${answer.join(", ")}.`) : "",
  );
}

function model(name, schema) {
  const rows = Object.entries(schema.properties || {}).map(([key, each]) => [
    el("code", {}, key),
    kind(each),
    each.description || "",
  ]);
  const parts = [el("h2", {}, el("code", {}, name)), el("p", {}, schema.description || "")];
  return el("section", { className: "route" }, ...parts, table(["field", "is", "meaning"], rows));
}

async function show() {
  const place = document.getElementById("routes");
  try {
    const told = await ask("/openapi.json");
    document.getElementById("title").textContent = told.info.title;
    const routes = Object.entries(told.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, about]) => route(path, method, about)),
    );
    const models = Object.entries(told.components?.schemas || {})
      .filter(([name]) => !name.includes("ValidationError"))
      .map(([name, schema]) => model(name, schema));
    place.replaceChildren(...routes, ...models);
  } catch (error) {
    place.replaceChildren(el("p", { className: "error", role: "alert" }, error.message));
  }
}

show();

import assert from "node:assert/strict";
import { test } from "node:test";

import { fixture } from "#tests/fixture.mjs";
import * as model from "#widgets/paged_kv/model.js";

const ACTIONS = {
  question: (pool) => model.add(pool, "question"),
  story: (pool) => model.add(pool, "story"),
  append: model.append,
  fork: model.fork,
  finish: model.finish,
};

function seen(pool) {
  return {
    tables: Object.fromEntries(pool.requests.map((each) => [each.name, each.pages])),
    texts: Object.fromEntries(pool.requests.map((each) => [each.name, each.tokens])),
    cached: Object.fromEntries(pool.requests.map((each) => [each.name, each.cached])),
    owners: pool.owners,
    names: pool.names,
    states: pool.owners.map((_, page) => model.state(pool, page)),
    kept: pool.kept,
    stored: model.stored(pool),
  };
}

test("paged KV: after each action the pool is that of tiny_llm", () => {
  for (const history of fixture) {
    let pool = model.start();
    history.forEach(({ action, name, refused, after }, number) => {
      const next = ACTIONS[action](pool, name);
      assert.equal(next.requests === pool.requests, refused, `step ${number}: ${action}`);
      assert.deepEqual(seen(next), after, `step ${number}: ${action} ${name ?? ""}`);
      pool = next;
    });
  }
});

test("paged KV: a written page shows its words, a blank one none", () => {
  const pool = model.add(model.start(), "question");
  assert.equal(pool.content[0].map(model.word).join(" "), "Be kind . Answer");
  assert.deepEqual(model.finish(pool, "A").content[2].map(model.word), ["Who", "was", "Ada", "?"]);
  assert.deepEqual(model.start().content[0], []);
});

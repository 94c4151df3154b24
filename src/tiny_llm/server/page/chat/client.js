// Requests to the server, with the key if there is one.
import { authorization, askForKey } from "../settings/key.js";
import { AnswerError, errorOf } from "./errors.js";
import { EventReader } from "./sse.js";

const SILENT_SECONDS = 60; // the server sends a comment every 15 s
const DONE = "[DONE]";

// An answer with status 200. Asks for the key, once for all requests that need it, when it is missing or wrong.
async function request(path, options = {}) {
  for (;;) {
    const used = authorization();
    const response = await send(path, { ...options, headers: { ...options.headers, ...used } });
    if (response.ok) return response;
    const error = await errorOf(response);
    if (error.status !== 401 || !(await askForKey(used.authorization))) throw error;
  }
}

async function send(path, options) {
  try {
    return await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new AnswerError({ code: "unreachable" });
  }
}

export async function listModels() {
  const { data } = await (await request("/v1/models")).json();
  return data.map(({ id, context_length: context }) => ({ id, context }));
}

// The text of /metrics. A missing key is an AnswerError with status 401: the panel asks for none by itself.
export async function readMetrics(signal) {
  const response = await send("/metrics", { signal, headers: authorization() });
  if (!response.ok) throw await errorOf(response);
  return response.text();
}

// The records of a streamed answer.
export async function* streamChat(body, signal) {
  const abort = new AbortController();
  const stop = () => abort.abort();
  signal.addEventListener("abort", stop);
  if (signal.aborted) stop();
  let silent = false;
  let timer = 0;
  const waitAgain = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      silent = true;
      stop();
    }, SILENT_SECONDS * 1000);
  };
  try {
    const response = await request("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal: abort.signal,
    });
    const requestId = response.headers.get("x-request-id") ?? "";
    const reader = response.body.getReader();
    const events = new EventReader();
    waitAgain();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new AnswerError({ code: "cut" });
      waitAgain();
      for (const data of events.read(value)) {
        if (data === DONE) return;
        const record = JSON.parse(data);
        if (record.error) throw failed(record.error, requestId);
        yield record;
      }
    }
  } catch (error) {
    if (silent) throw new AnswerError({ code: "silent" });
    if (signal.aborted || error instanceof AnswerError) throw error;
    throw new AnswerError({ code: "cut" });
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
    stop(); // the connection ends if the reader leaves early
  }
}

function failed({ message, code }, requestId) {
  return new AnswerError({ status: 500, message: message ?? "", code: code ?? "", requestId });
}

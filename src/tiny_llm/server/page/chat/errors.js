// What went wrong, as a sentence for the reader. Pure.

export class AnswerError extends Error {
  // `code` is the server's word, or "unreachable", "cut" or "silent"; `wait` is in seconds.
  constructor({ status = 0, code = "", message = "", requestId = "", wait = 0 }) {
    super(message || code);
    Object.assign(this, { status, code, requestId, wait });
  }
}

const SENTENCES = {
  unreachable: "The server cannot be reached. It may have stopped, or the network is down.",
  cut: "The connection ended before the answer was complete.",
  silent: "The server has sent nothing for a minute.",
  model_not_found: "The server no longer has this model. Choose another one above.",
  context_length_exceeded:
    "The conversation and its answer do not fit into the model's context. Shorten the question, lower the maximum length, or begin a new conversation.",
  queue_full: "Too many requests are waiting. Try again in a moment.",
  draining: "The server is shutting down and takes no new questions.",
  engine_failed: "The engine has stopped after a fault. The server has to be started again.",
  out_of_memory: "The server has no memory for this request. Try a shorter prompt or answer.",
  deadline: "The answer took longer than the server allows.",
  body_too_large: "The conversation is too large to send. Begin a new one.",
  host_not_allowed: "The server does not accept this host name: start it with --allowed-host.",
  invalid_api_key: "The server needs a key.",
};

export function sentenceOf(error) {
  if (!(error instanceof AnswerError)) return `The page failed: ${error.message}`;
  const known = SENTENCES[error.code];
  if (known) return known;
  if (error.status >= 500) return `The server failed to answer.${reference(error)}`;
  return error.message ? `The server refused this: ${error.message}` : `The server answered ${error.status}.`;
}

function reference({ requestId }) {
  return requestId ? ` Its log has the reason under ${requestId}.` : "";
}

// The error of an answer that is not 200.
export async function errorOf(response) {
  const record = await response.json().catch(() => null);
  const { message = "", code = "" } = record?.error ?? {};
  return new AnswerError({
    status: response.status,
    code: code ?? "",
    message: message ?? "",
    requestId: response.headers.get("x-request-id") ?? "",
    wait: Number(response.headers.get("retry-after")) || 0,
  });
}

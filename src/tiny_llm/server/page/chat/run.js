// One answer while it comes: fills the turn of a conversation and measures. What the turn has already is continued.
import { messagesOf } from "../conversations/conversation.js";
import { requestFields } from "../settings/fields.js";
import { streamChat } from "./client.js";
import { AnswerError, sentenceOf } from "./errors.js";

const CONTINUED = { continue_final_message: true, add_generation_prompt: false };

export class Run {
  // `turn` is the conversation's last one. `onChange` is called after each piece and at the end.
  constructor(conversation, turn, onChange) {
    Object.assign(this, { conversation, turn, onChange });
    this.abort = new AbortController();
  }

  stop() {
    this.abort.abort();
  }

  async finished() {
    const { conversation, turn } = this;
    const start = performance.now();
    const before = { usage: turn.usage, times: turn.times };
    let [first, last, pieces] = [0, 0, 0];
    const body = {
      model: conversation.model || undefined,
      messages: messagesOf(conversation),
      ...(turn.text ? CONTINUED : {}),
      ...requestFields(conversation.settings),
    };
    try {
      for await (const record of streamChat(body, this.abort.signal)) {
        if (record.usage) turn.usage = usageOf(record.usage, before.usage);
        const [choice] = record.choices ?? [];
        if (!choice) continue;
        const { content, reasoning_content: reasoning } = choice.delta ?? {};
        if (content || reasoning) {
          last = performance.now();
          first ||= last;
          pieces += 1;
          turn.text += content ?? "";
          turn.reasoning += reasoning ?? "";
        }
        if (choice.finish_reason) turn.end = choice.finish_reason;
        this.onChange();
      }
    } catch (error) {
      this.note(error);
    }
    if (turn.end === "running") turn.end = "stop";
    if (first) turn.times = timesOf({ first: (first - start) / 1000, rest: (last - first) / 1000, pieces }, before.times);
    this.onChange();
  }

  note(error) {
    if (this.abort.signal.aborted) {
      this.turn.end = "stopped";
      return;
    }
    this.turn.end = "error";
    this.turn.error = sentenceOf(error);
    if (!(error instanceof AnswerError)) console.error(error);
  }
}

// With the tokens of the answer's begin, which are now in the prompt.
function usageOf({ prompt_tokens: prompt, completion_tokens: more, prompt_tokens_details: details }, before) {
  const own = prompt - (before?.generated ?? 0);
  return { prompt: own, generated: prompt - own + more, cached: Math.min(details?.cached_tokens ?? 0, own) };
}

// Of an answer in two parts. The second one's wait for its first token is part of the rest.
function timesOf(times, before) {
  if (!before) return times;
  return { first: before.first, rest: before.rest + times.first + times.rest, pieces: before.pieces + times.pieces };
}

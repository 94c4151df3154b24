// One answer while it comes: fills the turn of a conversation and measures.
import { messagesOf } from "../conversations/conversation.js";
import { requestFields } from "../settings/fields.js";
import { streamChat } from "./client.js";
import { AnswerError, sentenceOf } from "./errors.js";

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
    let [first, last, pieces] = [0, 0, 0];
    const body = {
      model: conversation.model || undefined,
      messages: messagesOf(conversation),
      ...requestFields(conversation.settings),
    };
    try {
      for await (const record of streamChat(body, this.abort.signal)) {
        if (record.usage) turn.usage = usageOf(record.usage);
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
    if (first) turn.times = { first: (first - start) / 1000, rest: (last - first) / 1000, pieces };
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

function usageOf({ prompt_tokens: prompt, completion_tokens: generated, prompt_tokens_details: details }) {
  return { prompt, generated, cached: details?.cached_tokens ?? 0 };
}

// How much of the model's context a conversation takes. Pure.
const NEARLY = 0.9;

// A sentence, and whether there is little room left; null before the first answer, or for an unknown context.
export function contextOf(turns, context) {
  const usage = turns.findLast((turn) => turn.usage)?.usage;
  if (!usage || !context) return null;
  const share = (usage.prompt + usage.generated) / context;
  return { sentence: `${Math.round(share * 100)} % of the context used`, nearly: share >= NEARLY };
}

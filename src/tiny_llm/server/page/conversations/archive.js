// Conversations as a file: all of them, as JSON. Pure.
import { readConversation } from "./conversation.js";

const FORMAT = "tiny-llm conversations";

export function writeArchive(conversations) {
  return `${JSON.stringify({ format: FORMAT, conversations }, null, 1)}\n`;
}

// The conversations of a file, and how many of it cannot be read; null if it is not such a file.
export function readArchive(text) {
  let record;
  try {
    record = JSON.parse(text);
  } catch {
    return null;
  }
  if (record?.format !== FORMAT || !Array.isArray(record.conversations)) return null;
  const conversations = record.conversations.map((one) => readConversation(JSON.stringify(one))).filter(Boolean);
  return { conversations, broken: record.conversations.length - conversations.length };
}

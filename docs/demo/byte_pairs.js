// Byte-pair encoding in the browser, as tokenizer.json describes it: text to ids and back, and labels of tokens.

const WORD_PATTERN = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu; // as GPT-2 splits a text
const LINE_START_PATTERN = /(?<=\n)/; // each line with its line break

// Each byte as a printable character: the tokenizer's file contains these instead of bytes.
function byteCharacters() {
  const isPrintable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
}

const isLetter = (character) => /^[\p{L}\p{N}]$/u.test(character ?? "");

// A piece of text as a label: without surrounding spaces, and with invisible characters made visible.
function readable(piece) {
  const shown = piece.replace(/^ +| +$/g, "") || "␣".repeat(piece.length);
  return shown.replace(/[\p{C}\p{Z}]/gu, (character) => {
    if (character === " ") return character;
    if (character === "\n") return "⏎";
    const code = character.codePointAt(0);
    const named = { "\t": "\\t", "\r": "\\r" }[character];
    const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return named ?? `\\${letter}${code.toString(16).padStart(digits, "0")}`;
  });
}

// Bytes as text. Each byte that is only a part of a character is shown as \xf0.
function visibleBytes(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let start = 0, end; start < bytes.length; start = end) {
    end = start + 1;
    let character = null;
    for (; character === null && end <= Math.min(start + 4, bytes.length); end += 1) {
      try {
        character = decoder.decode(bytes.subarray(start, end));
      } catch {
        character = null;
      }
    }
    end = character === null ? start + 1 : end - 1;
    text += character ?? `\\x${bytes[start].toString(16).padStart(2, "0")}`;
  }
  return text;
}

export function createTokenizer({ model: { vocab, merges }, added_tokens: added }) {
  const characters = byteCharacters();
  const byteOf = new Map(characters.map((character, byte) => [character, byte]));
  const rank = new Map(merges.map(([left, right], number) => [`${left} ${right}`, number]));
  const special = new Map(added.map(({ id, content }) => [id, content]));
  const pieceOf = new Map(Object.entries(vocab).map(([piece, id]) => [id, piece]));

  function mergePairs(pieces) {
    for (;;) {
      let [best, at] = [Infinity, -1];
      for (let i = 0; i + 1 < pieces.length; i++) {
        const number = rank.get(`${pieces[i]} ${pieces[i + 1]}`) ?? Infinity;
        if (number < best) [best, at] = [number, i];
      }
      if (at < 0) return pieces;
      pieces.splice(at, 2, pieces[at] + pieces[at + 1]);
    }
  }

  function encode(text) {
    const bytes = new TextEncoder();
    const words = text.split(LINE_START_PATTERN).flatMap((line) => line.match(WORD_PATTERN) ?? []);
    return words.flatMap((word) => mergePairs(Array.from(bytes.encode(word), (byte) => characters[byte])).map((piece) => vocab[piece]));
  }

  function bytesOf(ids) {
    const pieces = ids.filter((id) => !special.has(id)).map((id) => pieceOf.get(id));
    return Uint8Array.from(pieces.join(""), (character) => byteOf.get(character));
  }

  const decode = (ids) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytesOf(ids));
  const piece = (id) => visibleBytes(bytesOf([id])) || special.get(id);
  const isLong = (id) => [...piece(id).trim()].length > 1 && !/^\\x[0-9a-f]{2}$/.test(piece(id).trim());

  // Whether two tokens are parts of one word, or of one character.
  function isOneWord(before, id) {
    const [first] = bytesOf([id]);
    if (first >= 0x80 && first < 0xc0 && decode([before]).endsWith("\ufffd")) return true; // it continues a character
    return isLetter([...decode([before])].at(-1)) && isLetter([...decode([id])][0]);
  }

  // The label of each token, with a dot before one that continues a word; no dots if all tokens are characters.
  function labels(ids) {
    const label = createLabels(ids);
    return ids.map((id, i) => label.one(id, ids[i - 1]));
  }

  // Labels of tokens that might follow a text, in the style of the labels of these ids.
  function createLabels(ids) {
    const hasDots = ids.some(isLong);
    const one = (id, before) => `${hasDots && before !== undefined && isOneWord(before, id) ? "·" : ""}${readable(piece(id))}`;
    // Labels of alternatives for one position. Of two equal ones, a mark distinguishes the unusual one: after other text the one
    // without a space, and at the start of a text the one that the tokenizer would not use there.
    function among(alternatives, before) {
      const names = alternatives.map((id) => one(id, before));
      const isTwice = (name) => names.indexOf(name) !== names.lastIndexOf(name);
      const isStart = before === undefined || decode([before]) === "";
      const mark = (id) => {
        const hasSpace = /^[ ·]/.test(piece(id));
        if (!isStart) return hasSpace ? "" : "·";
        if (encode(piece(id).trim())[0] === id) return "";
        return hasSpace ? "␣" : "·";
      };
      return names.map((name, i) => (isTwice(name) ? `${mark(alternatives[i])}${name}` : name));
    }
    return { one, among };
  }

  // The number of the word that each token belongs to.
  function wordNumbers(ids) {
    let number = 0;
    return ids.map((id, i) => (i && !isOneWord(ids[i - 1], id) ? (number += 1) : number));
  }

  return { encode, decode, labels, createLabels, wordNumbers };
}

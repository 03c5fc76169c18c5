// Byte-pair encoding in the browser, as tokenizer.json describes it: text to ids and back.

const WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu; // as GPT-2 splits a text

// Each byte as a printable character: the tokenizer's file contains these instead of bytes.
function byteCharacters() {
  const isPrintable = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
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
    const words = text.match(WORDS) ?? [];
    return words.flatMap((word) => mergePairs(Array.from(bytes.encode(word), (byte) => characters[byte])).map((piece) => vocab[piece]));
  }

  function decode(ids) {
    const pieces = ids.filter((id) => !special.has(id)).map((id) => pieceOf.get(id));
    return new TextDecoder().decode(Uint8Array.from(pieces.join(""), (character) => byteOf.get(character)));
  }

  // Labels of tokens: without spaces, and with a dot before one that continues a word.
  function labels(ids) {
    const texts = ids.map((id) => special.get(id) ?? decode([id]));
    const isLetter = (character) => /[\p{L}\p{N}]/u.test(character ?? "");
    return texts.map((text, i) => {
      const continues = i > 0 && isLetter(text[0]) && isLetter(texts[i - 1].at(-1)) && !special.has(ids[i - 1]);
      return (continues ? "·" : "") + (text.trim() || "␣");
    });
  }

  return { encode, decode, labels };
}

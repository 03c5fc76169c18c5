// Writes animated GIFs (version 89a): frames of 256 common colours, compressed with LZW.

const MAX_PALETTE_COLOURS = 256;
const MAX_LZW_CODE = 4095;

// Colours with five bits for each channel, as one number.
function reduceColours({ data }) {
  const reduced = new Uint16Array(data.length / 4);
  for (let i = 0, j = 0; i < data.length; i += 4, j += 1) reduced[j] = ((data[i] >> 3) << 10) | ((data[i + 1] >> 3) << 5) | (data[i + 2] >> 3);
  return reduced;
}

const channels = (colour) => [colour >> 10, (colour >> 5) & 31, colour & 31];

// A palette by median cut: the colours are divided where they vary most, until there are 256 groups.
function choosePalette(frames) {
  const counts = new Uint32Array(1 << 15);
  for (const frame of frames) for (const colour of frame) counts[colour] += 1;
  let groups = [[...counts.keys()].filter((colour) => counts[colour])];
  const spread = (group) => {
    const ranges = [0, 1, 2].map((channel) => {
      const values = group.map((colour) => channels(colour)[channel]);
      return Math.max(...values) - Math.min(...values);
    });
    const channel = ranges.indexOf(Math.max(...ranges));
    return { channel, range: ranges[channel] };
  };
  let measured = groups.map((group) => ({ group, ...spread(group) }));
  while (measured.length < MAX_PALETTE_COLOURS) {
    const widest = measured.reduce((best, each) => (each.range > best.range ? each : best), measured[0]);
    if (widest.range === 0) break;
    const sorted = [...widest.group].sort((a, b) => channels(a)[widest.channel] - channels(b)[widest.channel]);
    const middle = sorted.length >> 1;
    const halves = [sorted.slice(0, middle), sorted.slice(middle)];
    measured = [...measured.filter((each) => each !== widest), ...halves.map((group) => ({ group, ...spread(group) }))];
  }
  groups = measured.map(({ group }) => group);
  const lookup = new Uint8Array(1 << 15);
  const palette = groups.map((group, index) => {
    let [total, sums] = [0, [0, 0, 0]];
    for (const colour of group) {
      lookup[colour] = index;
      total += counts[colour];
      sums = channels(colour).map((value, i) => sums[i] + value * counts[colour]);
    }
    return sums.map((sum) => Math.round((sum / total) * (255 / 31)));
  });
  return { palette, lookup };
}

// LZW with codes of 9 to 12 bits.
function compress(indices) {
  const bytes = [];
  let [buffer, bits] = [0, 0];
  const write = (code, width) => {
    buffer |= code << bits;
    bits += width;
    while (bits >= 8) {
      bytes.push(buffer & 255);
      buffer >>>= 8;
      bits -= 8;
    }
  };
  const [clear, end] = [256, 257];
  let [table, width, next] = [new Map(), 9, 258];
  write(clear, width);
  let prefix = indices[0];
  for (let i = 1; i < indices.length; i += 1) {
    const key = (prefix << 8) | indices[i];
    const known = table.get(key);
    if (known !== undefined) {
      prefix = known;
      continue;
    }
    write(prefix, width);
    if (next <= MAX_LZW_CODE) {
      table.set(key, next);
      if (next === 1 << width && width < 12) width += 1;
      next += 1;
    } else {
      write(clear, width);
      [table, width, next] = [new Map(), 9, 258];
    }
    prefix = indices[i];
  }
  write(prefix, width);
  write(end, width);
  if (bits) bytes.push(buffer & 255);
  return bytes;
}

// A GIF of frames (ImageData of equal sizes) that are shown for this many milliseconds each, again and again.
export function encodeGif(frames, delays) {
  const [{ width, height }] = frames;
  const reduced = frames.map(reduceColours);
  const { palette, lookup } = choosePalette(reduced);
  const parts = [];
  const bytes = (...values) => parts.push(Uint8Array.from(values));
  const short = (value) => [value & 255, value >> 8];
  const ascii = (text) => [...text].map((letter) => letter.charCodeAt(0));
  bytes(...ascii("GIF89a"), ...short(width), ...short(height), 0xf7, 0, 0);
  bytes(...Array.from({ length: MAX_PALETTE_COLOURS }, (_, i) => palette[i] ?? [0, 0, 0]).flat());
  bytes(0x21, 0xff, 11, ...ascii("NETSCAPE2.0"), 3, 1, 0, 0, 0);
  reduced.forEach((frame, i) => {
    bytes(0x21, 0xf9, 4, 4, ...short(Math.round(delays[i] / 10)), 0, 0);
    bytes(0x2c, 0, 0, 0, 0, ...short(width), ...short(height), 0, 8);
    const data = compress(Uint8Array.from(frame, (colour) => lookup[colour]));
    for (let start = 0; start < data.length; start += 255) {
      const block = data.slice(start, start + 255);
      bytes(block.length, ...block);
    }
    bytes(0);
  });
  bytes(0x3b);
  return new Blob(parts, { type: "image/gif" });
}

// The roofline of one measured row: rates in GFLOP/s, bandwidths in GB/s, so operations and bytes in 10^9.

// A row's operations per byte, the lower of its two ceilings, and which one that is.
export function roof({ flops, bytes, peak, bandwidth }) {
  const intensity = flops / bytes;
  const slope = bandwidth === null ? Infinity : intensity * bandwidth;
  return { intensity, ceiling: Math.min(peak, slope), limit: slope < peak ? "memory" : "arithmetic" };
}

export function share(point) {
  return point.rate / roof(point).ceiling;
}

// The powers of ten around positive values, and `room` times the largest.
export function extent(values, room = 1) {
  const rounding = 1e-12; // of the logarithm of a power of ten
  const lowest = Math.floor(Math.log10(Math.min(...values)) + rounding);
  const highest = Math.ceil(Math.log10(room * Math.max(...values)) - rounding);
  return [10 ** lowest, 10 ** highest];
}

// The powers of ten from low to high.
export function decades([low, high]) {
  return Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, i) => low * 10 ** i);
}

// A logarithmic axis: low is drawn at `from`, high at `to`.
export function axis([low, high], from, to) {
  return (x) => from + ((to - from) * Math.log(x / low)) / Math.log(high / low);
}

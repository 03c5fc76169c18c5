// Principal component analysis of a few vectors: the coordinates on the two directions of largest variance. They are found from
// the products of the centred vectors, a small matrix, by power iteration.

const POWER_ITERATIONS = 500;
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

// The eigenvector of a symmetric matrix with the largest eigenvalue, and that eigenvalue.
function largestEigenvector(matrix) {
  let vector = matrix.map((_, i) => Math.sin(1 + i)); // any start that is not orthogonal to it
  let value = 0;
  for (let n = 0; n < POWER_ITERATIONS; n += 1) {
    const next = matrix.map((row) => dot(row, vector));
    value = Math.sqrt(dot(next, next));
    if (value < 1e-12) return { vector: vector.map(() => 0), value: 0 };
    vector = next.map((each) => each / value);
  }
  return { vector, value };
}

export function principalCoordinates(vectors) {
  const centre = vectors[0].map((_, d) => vectors.reduce((sum, vector) => sum + vector[d], 0) / vectors.length);
  const centred = vectors.map((vector) => vector.map((value, d) => value - centre[d]));
  let products = centred.map((a) => centred.map((b) => dot(a, b)));
  const total = products.reduce((sum, row, i) => sum + row[i], 0);
  const axes = [0, 1].map(() => {
    const { vector, value } = largestEigenvector(products);
    products = products.map((row, i) => row.map((each, j) => each - value * vector[i] * vector[j]));
    const sign = vector[vector.reduce((best, each, i) => (Math.abs(each) > Math.abs(vector[best]) ? i : best), 0)] < 0 ? -1 : 1;
    return { coordinates: vector.map((each) => sign * each * Math.sqrt(value)), value };
  });
  const points = vectors.map((_, i) => axes.map(({ coordinates }) => coordinates[i]));
  return { points, explained: total > 0 ? (axes[0].value + axes[1].value) / total : 1 };
}

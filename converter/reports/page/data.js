// The data of this page, as Python wrote it: rows of all artifacts, details in packed blocks.

const shared = parsed(document.querySelector("script.shared"));
// Names of files may hold what is no character, and an address cannot.
const words = shared.words.map((text) => text.toWellFormed());
const word = (number) => words[number];

// Rows are arrays; here their columns get their names, and numbers are replaced by the shared words.
function named(row, number) {
  const artifact = { number };
  shared.columns.forEach((column, i) => {
    const value = row[i];
    const isWord = shared.interned.includes(column);
    artifact[column] = !isWord ? value : Array.isArray(value) ? value.map(word) : word(value);
  });
  artifact.name = artifact.name.toWellFormed();
  return artifact;
}

const artifacts = [...document.querySelectorAll("script.rows")]
  .flatMap(parsed)
  .map((row, number) => named(row, number));
const byName = new Map(artifacts.map((artifact) => [artifact.name, artifact]));

const packs = document.querySelectorAll("script.details");
const unpacked = new Map(); // number of a block -> promise of its details

async function detailsOf(artifact) {
  const block = Math.floor(artifact.number / shared.block);
  if (!unpacked.has(block)) unpacked.set(block, unpack(packs[block].textContent));
  return (await unpacked.get(block))[artifact.number % shared.block];
}

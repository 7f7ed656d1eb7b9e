// Data of the page as Python wrote it: JSON, plain or packed.

const parsed = (node) => JSON.parse(node.textContent);

async function unpack(letters) {
  const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

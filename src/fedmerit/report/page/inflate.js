// Inflate: data and plotly stand in the page deflated and in base64, for they would be three times as large.

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const signs = atob(text);
  const bytes = new Uint8Array(signs.length);
  for (let i = 0; i < signs.length; i += 1) bytes[i] = signs.charCodeAt(i);
  return bytes;
}

// The text that an element of the page holds.
function inflated(id) {
  const packed = new Blob([bytesOf($(id).textContent)]).stream();
  return new Response(packed.pipeThrough(new DecompressionStream("deflate"))).text();
}

if (!window.DecompressionStream) $("lead").textContent = "This report needs a browser of 2023 or newer.";

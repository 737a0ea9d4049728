// @ts-check
/** Opens what the vault sealed: HPKE base mode of RFC 9180, X25519, HKDF-SHA256, AES-256-GCM, with the browser's own
 * WebCrypto. The private key is made for one reveal, cannot be exported, and is forgotten with it. */

export const text = new TextEncoder();
const NONE = new Uint8Array(0);
const VERSION = text.encode("HPKE-v1");
const KEM = join(text.encode("KEM"), new Uint8Array([0, 0x20]));
const SUITE = join(text.encode("HPKE"), new Uint8Array([0, 0x20, 0, 1, 0, 2]));
export const KEY_BYTES = 32;

/** @param {...Uint8Array} parts @returns {Uint8Array<ArrayBuffer>} */
export function join(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** @param {Uint8Array<ArrayBuffer>} key @param {Uint8Array<ArrayBuffer>} data */
async function hmac(key, data) {
  // An empty key and one of zeros are the same to HMAC; WebCrypto takes only the latter.
  const raw = key.length ? key : new Uint8Array(32);
  const held = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", held, data));
}

/** @param {Uint8Array} suite @param {Uint8Array<ArrayBuffer>} salt @param {string} label @param {Uint8Array} input */
function extract(suite, salt, label, input) {
  return hmac(salt, join(VERSION, suite, text.encode(label), input));
}

/** At most one block of SHA-256, which is all that is needed here.
 * @param {Uint8Array} suite @param {Uint8Array<ArrayBuffer>} key @param {string} label @param {Uint8Array} info
 * @param {number} length */
async function expand(suite, key, label, info, length) {
  const labelled = join(new Uint8Array([0, length]), VERSION, suite, text.encode(label), info, new Uint8Array([1]));
  return (await hmac(key, labelled)).slice(0, length);
}

/** The key and the nonce of the one message that is sealed: RFC 9180, 4.1 and 5.1, base mode.
 * @param {Uint8Array} secret the Diffie-Hellman result @param {Uint8Array} encapsulated @param {Uint8Array} receiver
 * @param {string} name what it is sealed for @param {"encrypt" | "decrypt"} use */
export async function schedule(secret, encapsulated, receiver, name, use) {
  const prk = await extract(KEM, NONE, "eae_prk", secret);
  const shared = await expand(KEM, prk, "shared_secret", join(encapsulated, receiver), 32);
  const info = text.encode("capkernel-view-1|" + name);
  const context = join(
    new Uint8Array([0]),
    await extract(SUITE, NONE, "psk_id_hash", NONE),
    await extract(SUITE, NONE, "info_hash", info),
  );
  const base = await extract(SUITE, shared, "secret", NONE);
  const raw = await expand(SUITE, base, "key", context, 32);
  const iv = await expand(SUITE, base, "base_nonce", context, 12);
  return { key: await crypto.subtle.importKey("raw", raw, "AES-GCM", false, [use]), iv };
}

/** A fresh key for one reveal: the public half, and how to open what was sealed to it for a handle. */
export async function freshKey() {
  const pair = /** @type {CryptoKeyPair} */ (await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]));
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));

  /** @param {Uint8Array<ArrayBuffer>} sealed @param {string} handle @returns {Promise<string>} */
  async function open(sealed, handle) {
    const encapsulated = sealed.slice(0, KEY_BYTES);
    const theirs = await crypto.subtle.importKey("raw", encapsulated, { name: "X25519" }, false, []);
    const secret = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: theirs }, pair.privateKey, 256));
    const { key, iv } = await schedule(secret, encapsulated, publicKey, handle, "decrypt");
    const plain = await crypto.subtle.decrypt({ name: "AES-GCM", iv }, key, sealed.slice(KEY_BYTES));
    return new TextDecoder("utf-8", { fatal: true }).decode(plain);
  }

  return { publicKey, open };
}

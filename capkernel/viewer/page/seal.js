// @ts-check
/** Seals what the person types to a key of the vault: the sending side of what open.js opens. */
import { join, schedule, text } from "./open.js";

/** The encapsulated key and the ciphertext. @param {string} typed @param {Uint8Array<ArrayBuffer>} publicKey
 * @param {string} name what it is sealed for */
export async function seal(typed, publicKey, name) {
  const pair = /** @type {CryptoKeyPair} */ (await crypto.subtle.generateKey({ name: "X25519" }, false, ["deriveBits"]));
  const encapsulated = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  const theirs = await crypto.subtle.importKey("raw", publicKey, { name: "X25519" }, false, []);
  const secret = new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: theirs }, pair.privateKey, 256));
  const { key, iv } = await schedule(secret, encapsulated, publicKey, name, "encrypt");
  return join(encapsulated, new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv }, key, text.encode(typed))));
}

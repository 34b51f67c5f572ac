// An identity provider of its own process: npm's oidc-provider with the login and consent pages that it comes with, where
// any password is right.
//
//   node provider.mjs PACKAGES SETTINGS
//
// PACKAGES is the folder node_modules, SETTINGS a JSON object: port, client, secret, console (URL), audience,
// lifetime_seconds. Prints "ready", then a line for each login that is renewed or revoked. On standard input, "revoke USER"
// ends the user's logins, as an administrator would.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [packages, text] = process.argv.slice(2);
const settings = JSON.parse(text);
const { default: Provider } = await import(pathToFileURL(`${packages}/oidc-provider/lib/index.js`));

const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const key = { ...privateKey.export({ format: "jwk" }), kid: randomBytes(8).toString("hex"), alg: "RS256", use: "sig" };
const grants = new Map();

const provider = new Provider(`http://localhost:${settings.port}`, {
  clients: [
    {
      client_id: settings.client,
      client_secret: settings.secret,
      redirect_uris: [`${settings.console}/login/callback`],
      post_logout_redirect_uris: [`${settings.console}/login`],
      grant_types: ["authorization_code", "refresh_token"],
    },
  ],
  jwks: { keys: [key] },
  cookies: { keys: [randomBytes(16).toString("hex")] },
  pkce: { methods: ["S256"], required: () => true },
  issueRefreshToken: async () => true,
  rotateRefreshToken: true,
  // Claims of the access token are those of the resource server, which are the brokers.
  features: {
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: async () => "urn:brokers",
      useGrantedResource: async () => true,
      getResourceServerInfo: async () => ({
        scope: "",
        audience: settings.audience,
        accessTokenTTL: settings.lifetime_seconds,
        accessTokenFormat: "jwt",
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  ttl: { RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 3600, IdToken: 3600, AuthorizationCode: 60 },
});

// Its pages ask for a font of another host.
provider.use(async (context, next) => {
  await next();
  if (typeof context.body === "string") context.body = context.body.replace(/@import url\([^)]*\);/, "");
});

function tell(...words) {
  process.stdout.write(`${words.join(" ")}\n`);
}

provider.on("grant.success", (context) => {
  const { client, account, entities } = context.oidc;
  const id = entities.RefreshToken?.grantId ?? entities.AuthorizationCode?.grantId;
  grants.set(account.accountId, [...(grants.get(account.accountId) ?? []), { client, id }]);
  tell(context.oidc.params.grant_type === "refresh_token" ? "renewed" : "granted", account.accountId);
});
provider.on("grant.error", (_, error) => tell("refused", error.error, error.error_detail ?? ""));
provider.on("refresh_token.destroyed", (token) => tell("destroyed", token.accountId));
provider.on("server_error", (_, error) => console.error(error));

async function revoke(user) {
  for (const { id } of grants.get(user) ?? []) {
    await Promise.all(["RefreshToken", "AccessToken"].map((kind) => provider[kind].revokeByGrantId(id)));
    await (await provider.Grant.find(id))?.destroy();
  }
  tell("revoked", user);
}

provider.listen(settings.port, "localhost", () => tell("ready"));
createInterface({ input: process.stdin })
  .on("line", (line) => revoke(line.replace("revoke ", "")))
  .on("close", () => process.exit());

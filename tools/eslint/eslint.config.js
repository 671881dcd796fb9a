// Rules for the report's scripts (src/fedmerit/report/page/*.js). They share one scope: the page joins them into one
// async function. Each file therefore knows the names that the others declare, and a name counts as used if another
// file uses it.
import { readdirSync, readFileSync } from "node:fs";

const FOLDER = "src/fedmerit/report/page";
const BROWSER = [
  ...["atob", "Blob", "clearTimeout", "console", "CSS", "DecompressionStream", "document", "Element", "Event", "EventSource", "fetch"],
  ...["getComputedStyle", "history", "innerHeight", "innerWidth", "IntersectionObserver", "localStorage", "location"],
  ...["matchMedia", "navigator", "Node", "performance", "Plotly", "requestAnimationFrame", "ResizeObserver"],
  ...["Response", "setTimeout", "URL", "URLSearchParams", "window"],
];
const DECLARATION = /^(?:const|let|class|(?:async )?function\*?) (\w+|\$)/gm;

const texts = new Map(
  readdirSync(FOLDER)
    .filter((name) => name.endsWith(".js"))
    .map((name) => [name, readFileSync(`${FOLDER}/${name}`, "utf8")]),
);

function declared(text) {
  return [...text.matchAll(DECLARATION)].map((match) => match[1]);
}

function names(text) {
  return new Set(text.match(/[\w$]+/g));
}

function settings([name, text]) {
  const others = [...texts].filter(([other]) => other !== name);
  const shared = others.flatMap(([, other]) => declared(other));
  const used = declared(text).filter((word) => others.some(([, other]) => names(other).has(word)));
  const globals = Object.fromEntries([...BROWSER, ...shared].map((word) => [word, "readonly"]));
  const pattern = `^(?:${used.map((word) => word.replace("$", "\\$")).join("|")})$`;
  return {
    files: [`${FOLDER}/${name}`],
    languageOptions: { ecmaVersion: 2023, sourceType: "module", globals },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: { ...RULES, "no-unused-vars": ["error", { varsIgnorePattern: pattern }] },
  };
}

const RULES = {
  "array-callback-return": "error",
  "constructor-super": "error",
  curly: ["error", "multi-line"],
  "default-case-last": "error",
  eqeqeq: "error",
  "for-direction": "error",
  "getter-return": "error",
  "max-len": ["error", { code: 120 }],
  "no-async-promise-executor": "error",
  "no-cond-assign": "error",
  "no-const-assign": "error",
  "no-constant-condition": "error",
  "no-debugger": "error",
  "no-dupe-args": "error",
  "no-dupe-else-if": "error",
  "no-dupe-keys": "error",
  "no-duplicate-case": "error",
  "no-empty": "error",
  "no-eval": "error",
  "no-fallthrough": "error",
  "no-func-assign": "error",
  "no-global-assign": "error",
  "no-implied-eval": "error",
  "no-irregular-whitespace": "error",
  "no-loss-of-precision": "error",
  "no-redeclare": "error",
  "no-self-assign": "error",
  "no-self-compare": "error",
  "no-shadow-restricted-names": "error",
  "no-undef": "error",
  "no-unreachable": "error",
  "no-unsafe-finally": "error",
  "no-unsafe-optional-chaining": "error",
  "no-useless-escape": "error",
  "no-var": "error",
  "no-with": "error",
  "object-shorthand": "error",
  "prefer-const": "error",
  "use-isnan": "error",
  "valid-typeof": "error",
};

export default [...texts].map(settings);

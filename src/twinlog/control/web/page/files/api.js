// Queries /api/v1. A token, if one is needed, is stored for this tab only.

const TOKEN = "twinlog-token";
const LONGEST_MS = 190000; // a query of both clusters may take three minutes
export const WITHIN_MS = 10000; // a process that hangs is shown as unreachable

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.what || `HTTP ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

export const setToken = (token) => sessionStorage.setItem(TOKEN, token);

export async function ask(path, body = undefined, withinMs = LONGEST_MS) {
  const headers = {};
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer, text;
  try {
    answer = await fetch(`/api/v1${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(withinMs),
    });
    text = await answer.text(); // it may be cut off in the middle
  } catch {
    throw new Refused(0, { code: "UNREACHABLE", what: "this process does not respond", do: "check that the mirror is running" });
  }
  let found = {};
  try {
    found = JSON.parse(text);
  } catch {
    found = { what: text.slice(0, 300) };
  }
  if (!answer.ok) throw new Refused(answer.status, found);
  return found;
}

export const flowPath = (flow) => `/flows/${encodeURIComponent(flow)}`;

// Files to a desk and from it.
import { signal } from "@preact/signals";
import { address, request, told, viewer } from "../api/client";
import { say } from "../ui/parts";
import { count } from "../lib/format";

export interface Upload { name: string; part: number }
export const uploads = signal<Upload[]>([]);

/** Puts files into a directory of the desk; the home directory if it is empty. */
export async function uploadAll(desk: string, directory: string, files: Iterable<File>) {
  const list = [...files];
  let done = 0;
  for (const file of list) {
    try {
      await upload(desk, directory ? `${directory.replace(/\/$/, "")}/${file.name}` : file.name, file);
      done++;
    } catch (error) {
      say(`${file.name} was not uploaded: ${told(error)}`, "bad");
    }
  }
  if (done) say(`${count(done, "file")} uploaded${directory ? ` to ${directory}` : " to the home directory"}`);
}

/** XMLHttpRequest, because fetch does not tell how far it is. */
function upload(desk: string, path: string, file: File): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const progress = (part: number) => (uploads.value = [...uploads.value.filter((u) => u.name !== file.name), { name: file.name, part }]);
    request.open("PUT", address(`v1/desks/${desk}/files/content`, { path }));
    request.setRequestHeader("x-hotdesk-viewer", viewer);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    request.onloadend = () => {
      uploads.value = uploads.value.filter((u) => u.name !== file.name);
      if (request.status >= 200 && request.status < 300) return resolve();
      let words = request.status ? `the desk answered ${request.status}` : "the fleet does not answer";
      try {
        words = JSON.parse(request.responseText).detail ?? words;
      } catch {
        // No problem in the API's form.
      }
      reject(new Error(words));
    };
    progress(0);
    request.send(file);
  });
}

export async function download(desk: string, path: string) {
  const answer = await request(`v1/desks/${desk}/files/content`, { query: { path } });
  save(await answer.blob(), path.split("/").pop() ?? "file");
}

export function save(blob: Blob, name: string) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// The desk's files: look, fetch, put (by dropping them here), make directories, delete.
import { useRef, useState } from "preact/hooks";
import { get, request, send } from "../api/client";
import type { FileInfo, FileList } from "../api/types";
import { bytes, dateTime } from "../lib/format";
import { useRead } from "../lib/use-read";
import { Icon } from "../ui/icon";
import { attempt, Button, Empty, Failure } from "../ui/parts";
import { PanelHead } from "./panels";
import { download, uploadAll, uploads } from "./upload";

const HOME = "/home/user";

export function Files({ desk }: { desk: string }) {
  const [path, setPath] = useState("");
  const [hidden, setHidden] = useState(false);
  const [dragging, setDragging] = useState(false);
  const picker = useRef<HTMLInputElement>(null);
  const list = useRead(() => get<FileList>(`v1/desks/${desk}/files`, { query: { path: path || null, hidden } }), [desk, path, hidden]);
  const here = list.value?.path ?? (path || HOME);
  const entries = (list.value?.entries ?? []).filter((entry) => hidden || !entry.name.startsWith(".")).sort((a, b) => Number(isDirectory(b)) - Number(isDirectory(a)) || a.name.localeCompare(b.name));

  const put = async (files: Iterable<File> | null | undefined) => {
    if (!files) return;
    await uploadAll(desk, here, files);
    list.again();
  };
  const make = async () => {
    const name = prompt("Name of the new directory");
    if (!name) return;
    await attempt(send("POST", `v1/desks/${desk}/files/mkdir`, { path: `${here}/${name}` }));
    list.again();
  };
  const remove = async (entry: FileInfo) => {
    if (!confirm(`Delete ${entry.name}?`)) return;
    await attempt(request(`v1/desks/${desk}/files`, { method: "DELETE", query: { path: entry.path, recursive: entry.kind === "directory" } }), `${entry.name} is deleted`);
    list.again();
  };

  return (
    <div
      class={`files ${dragging ? "dragging" : ""}`}
      onDragOver={(event) => { event.preventDefault(); setDragging(true); }}
      onDragLeave={(event) => !event.currentTarget.contains(event.relatedTarget as Node) && setDragging(false)}
      onDrop={(event) => { event.preventDefault(); setDragging(false); void put(event.dataTransfer?.files); }}
    >
      <PanelHead title="Files">
        <Button look="small plain" pressed={hidden} onClick={() => setHidden(!hidden)} title="Files whose names begin with a dot">Hidden</Button>
        <Button look="small plain" icon="plus" label="New directory" onClick={make} />
        <Button look="small" icon="upload" onClick={() => picker.current?.click()}>Upload</Button>
        <input ref={picker} type="file" multiple hidden aria-label="Files to upload" onChange={(e) => void put(e.currentTarget.files)} />
      </PanelHead>
      <Crumbs path={here} onPath={setPath} />
      {uploads.value.map((u) => (
        <div key={u.name} class="upload"><span class="cut grow tiny">{u.name}</span><progress max={1} value={u.part} aria-label={`Uploading ${u.name}`} /></div>
      ))}
      {list.error && !list.value ? <div class="panel-pad"><Failure error={list.error} again={list.again} /></div> : !list.value ? <Loading /> : (
        <ul class="file-list">
          {entries.map((entry) => (
            <li key={entry.path}>
              <button type="button" class="file" onClick={() => (isDirectory(entry) ? setPath(entry.path) : void attempt(download(desk, entry.path)))} title={isDirectory(entry) ? "Open" : "Download"}>
                <Icon name={isDirectory(entry) ? "folder" : "file"} class={isDirectory(entry) ? "accent" : "faint"} />
                <span class="cut grow">{entry.name}</span>
                <span class="faint tiny number">{isDirectory(entry) ? "" : bytes(entry.size)}</span>
                <span class="faint tiny number file-time">{dateTime(entry.modified_ms)}</span>
              </button>
              <Button icon="trash" look="small plain" label={`Delete ${entry.name}`} onClick={() => void remove(entry)} />
            </li>
          ))}
          {!entries.length && <Empty icon="folder" title="Nothing here">Drop files here to upload them.</Empty>}
        </ul>
      )}
      {dragging && <div class="files-drop"><Icon name="upload" size={26} />Drop to upload to {here}</div>}
    </div>
  );
}

function Crumbs({ path, onPath }: { path: string; onPath: (path: string) => void }) {
  const parts = path.split("/").filter(Boolean);
  return (
    <nav class="crumbs" aria-label="Directory">
      <button type="button" onClick={() => onPath("/")} aria-label="Root directory">/</button>
      {parts.map((part, index) => (
        <button type="button" key={index} onClick={() => onPath("/" + parts.slice(0, index + 1).join("/"))} aria-current={index === parts.length - 1 ? "location" : undefined}>{part}</button>
      ))}
    </nav>
  );
}

function Loading() {
  return <div class="panel-pad column" style={{ gap: "8px" }}>{[80, 60, 70, 40].map((width) => <div key={width} class="skeleton" style={{ height: "18px", width: `${width}%` }} />)}</div>;
}

function isDirectory(entry: FileInfo): boolean {
  return entry.kind === "directory" || entry.end?.kind === "directory";
}

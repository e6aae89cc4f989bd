import { render } from "preact";
import { useEffect } from "preact/hooks";
import { signedIn } from "./api/client";
import { desks, follow } from "./lib/desks";
import { place, wallLink } from "./lib/router";
import { restore } from "./lib/session";
import { DeskPage } from "./pages/desk";
import { FleetPage } from "./pages/fleet";
import { SignIn } from "./pages/sign-in";
import { TracePage } from "./pages/trace";
import { Wall } from "./pages/wall";
import { Empty, Toasts } from "./ui/parts";
import { Shell } from "./ui/shell";
import "./style/tokens.css";
import "./style/base.css";
import "./style/parts.css";
import "./style/shell.css";
import "./style/wall.css";
import "./style/desk.css";
import "./style/panels.css";
import "./style/trace.css";
import "./style/fleet.css";

void restore();
follow();

function App() {
  const title = useTitle();
  useEffect(() => {
    document.title = title;
  }, [title]);
  if (signedIn.value === null) return null;
  if (!signedIn.value) return <SignIn />;
  return (
    <>
      <Shell><Page /></Shell>
      <Toasts />
    </>
  );
}

function Page() {
  const at = place.value;
  switch (at.at) {
    case "wall": return <Wall />;
    case "desk": return <DeskPage key={at.desk} id={at.desk} />;
    case "trace": return <TracePage key={at.trace} desk={at.desk} id={at.trace} />;
    case "fleet": return <FleetPage />;
    case "nowhere":
      return <Empty icon="search" title="There is no such page" action={<a class="button" href={wallLink}>To the desks</a>}>The address leads nowhere.</Empty>;
  }
}

function useTitle(): string {
  const at = place.value;
  if (!signedIn.value) return "Sign in · hotdesk";
  if (at.at === "fleet") return "Fleet · hotdesk";
  if (at.at === "desk" || at.at === "trace") return `${desks.value.get(at.desk)?.name ?? at.desk} · hotdesk`;
  return "Desks · hotdesk";
}

render(<App />, document.getElementById("app")!);

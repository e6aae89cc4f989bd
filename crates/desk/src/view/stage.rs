//! What a viewer's session needs of a desk. The seam that lets sessions be tested without X.

use super::viewers::Viewer;
use crate::Desk;
use crate::clipboard::Selection;
use crate::error::Result;
use crate::input::live;
use crate::lease::{Asker, Touch, with_asker};
use crate::screen::{FrameUpdate, Seen};
use hotdesk_api::action::Size;
use tokio::sync::{mpsc, watch};

pub(crate) trait Stage: Clone + Send + Sync + 'static {
    /// The screen as it is.
    fn frame(&self) -> impl Future<Output = Result<FrameUpdate>> + Send;

    /// The screen as soon as it is no longer as in `seen`. May be given up at any time.
    fn next_frame(&self, seen: Seen) -> impl Future<Output = Result<FrameUpdate>> + Send;

    fn resize(&self, size: Size) -> impl Future<Output = Result<Size>> + Send;

    /// Asks whether an event of this viewer counts.
    fn touch(&self, _viewer: &Viewer, _event: live::Event) -> impl Future<Output = bool> + Send {
        std::future::ready(true)
    }

    /// Whether a text of this viewer may go to the clipboard.
    fn may_copy(&self, _viewer: &Viewer) -> bool {
        true
    }

    /// Hands for one viewer. When the sender is dropped they let go of everything.
    fn hands(&self) -> mpsc::Sender<live::Event>;

    /// The text on the clipboard; empty if there is none.
    fn copied_text(&self) -> impl Future<Output = Result<String>> + Send;

    fn copy_text(&self, viewer: &Viewer, text: String) -> impl Future<Output = Result<()>> + Send;

    /// Changes whenever the clipboard has another owner or content.
    fn clipboard_changes(&self) -> watch::Receiver<u64>;
}

impl Stage for Desk {
    async fn frame(&self) -> Result<FrameUpdate> {
        self.screen.frame().await
    }

    async fn next_frame(&self, seen: Seen) -> Result<FrameUpdate> {
        self.screen.next_frame(seen).await
    }

    async fn resize(&self, size: Size) -> Result<Size> {
        self.screen.resize(size).await
    }

    async fn touch(&self, viewer: &Viewer, event: live::Event) -> bool {
        if self.lease.touch(&viewer.seat(), viewer.word.is_none(), self.input.clone()).await == Touch::Dropped {
            return false;
        }
        self.tracer.live(self.lease.look().name, event).await;
        true
    }

    fn may_copy(&self, viewer: &Viewer) -> bool {
        self.lease.may_copy(&viewer.seat(), viewer.word.is_none())
    }

    fn hands(&self) -> mpsc::Sender<live::Event> {
        live::hands(self.place.clone())
    }

    async fn copied_text(&self) -> Result<String> {
        self.clipboard.text(Selection::Clipboard).await
    }

    async fn copy_text(&self, viewer: &Viewer, text: String) -> Result<()> {
        let asker = Asker { viewer: Some(viewer.seat()), entrance: "view".into() };
        with_asker(asker, self.clipboard.set_text(Selection::Clipboard, text)).await
    }

    fn clipboard_changes(&self) -> watch::Receiver<u64> {
        self.view.clipboard_changes(&self.place.display)
    }
}

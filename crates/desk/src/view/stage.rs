//! What a viewer's session needs of a desk. The seam that lets sessions be tested without X.

use crate::Desk;
use crate::clipboard::Selection;
use crate::error::Result;
use crate::input::live;
use crate::screen::{FrameUpdate, Seen};
use hotdesk_api::action::Size;
use tokio::sync::{mpsc, watch};

pub(crate) trait Stage: Clone + Send + Sync + 'static {
    /// The screen as it is.
    fn frame(&self) -> impl Future<Output = Result<FrameUpdate>> + Send;

    /// The screen as soon as it is no longer as in `seen`. May be given up at any time.
    fn next_frame(&self, seen: Seen) -> impl Future<Output = Result<FrameUpdate>> + Send;

    fn resize(&self, size: Size) -> impl Future<Output = Result<Size>> + Send;

    /// Hands for one viewer. When the sender is dropped they let go of everything.
    fn hands(&self) -> mpsc::Sender<live::Event>;

    /// The text on the clipboard; empty if there is none.
    fn copied_text(&self) -> impl Future<Output = Result<String>> + Send;

    fn copy_text(&self, text: String) -> impl Future<Output = Result<()>> + Send;

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

    fn hands(&self) -> mpsc::Sender<live::Event> {
        live::hands(self.place.clone())
    }

    async fn copied_text(&self) -> Result<String> {
        self.clipboard.text(Selection::Clipboard).await
    }

    async fn copy_text(&self, text: String) -> Result<()> {
        self.clipboard.set_text(Selection::Clipboard, text).await
    }

    fn clipboard_changes(&self) -> watch::Receiver<u64> {
        self.view.clipboard_changes(&self.place.display)
    }
}

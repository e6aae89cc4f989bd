//! A session on a real X server.

use super::*;
use crate::place::Place;
use crate::screen::{FrameUpdate, Screen, Seen};
use crate::x11::tests::TestDisplay;
use tokio::sync::{mpsc, watch};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    ChangeGCAux, ConnectionExt as _, CreateGCAux, CreateWindowAux, ImageFormat, Rectangle, WindowClass,
};
use x11rb::wrapper::ConnectionExt as _;

/// A display, without the rest of a desk.
#[derive(Clone)]
struct OnDisplay {
    place: Arc<Place>,
    screen: Screen,
}

impl Stage for OnDisplay {
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
        Ok(String::new())
    }

    async fn copy_text(&self, _: &Viewer, _: String) -> Result<()> {
        Ok(())
    }

    fn clipboard_changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

async fn visit(stage: &OnDisplay, encodings: &[i32]) -> Client<DuplexStream> {
    let (near, far) = duplex(1 << 16);
    let (view, stage) = (View::new(Options::default()), stage.clone());
    let entrance = Entrance { door: Door::Open, from: None, view_only: false, resize: true, word: None };
    tokio::spawn(async move { view.attend(stage, "test", far, entrance, CancellationToken::new()).await });
    let mut client = Client::meet(near).await;
    client.encodings(encodings).await;
    client
}

/// Draws at random and compares what the viewer has with what X has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_drawn_is_what_a_viewer_has() {
    let display = TestDisplay::bare();
    let stage = OnDisplay { place: display.place.clone(), screen: Screen::new(display.place.clone()) };
    let (x, _) = display.place.display.connect().unwrap();
    let root = &x.setup().roots[0];
    let (window, gc) = (x.generate_id().unwrap(), x.generate_id().unwrap());
    x.create_window(
        root.root_depth,
        window,
        root.root,
        100,
        100,
        640,
        480,
        0,
        WindowClass::INPUT_OUTPUT,
        root.root_visual,
        &CreateWindowAux::new().override_redirect(1).background_pixel(0x33_6699),
    )
    .unwrap();
    x.map_window(window).unwrap();
    x.create_gc(gc, window, &CreateGCAux::new()).unwrap();
    x.sync().unwrap();
    let truth = || -> Vec<u32> {
        let image = x.get_image(ImageFormat::Z_PIXMAP, root.root, 0, 0, 1280, 800, !0).unwrap().reply().unwrap();
        image.data.as_chunks::<4>().0.iter().map(|p| u32::from_le_bytes(*p) & 0xff_ffff).collect()
    };
    for encodings in [&[0, -239, -232][..], &[7, -26, -239, -232], &[16, -239, -232]] {
        let mut client = visit(&stage, encodings).await;
        client.request(false).await;
        client.update().await;
        let mut random = 99u32;
        for turn in 0..12u32 {
            for _ in 0..20 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (left, top) = ((random >> 20) as i16 % 600, (random >> 12) as i16 % 440);
                x.change_gc(gc, &ChangeGCAux::new().foreground(random >> 8)).unwrap();
                let side = (random >> 9 & 63) as u16 + 1;
                x.poly_fill_rectangle(window, gc, &[Rectangle { x: left, y: top.abs(), width: side, height: side / 2 + 1 }])
                    .unwrap();
            }
            if turn == 6 {
                // Windows that move leave traces where they were.
                x.configure_window(window, &x11rb::protocol::xproto::ConfigureWindowAux::new().x(333).y(222)).unwrap();
            }
            x.sync().unwrap();
            client.catch_up(truth).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pointer_goes_where_the_viewer_points() {
    let display = TestDisplay::bare();
    let stage = OnDisplay { place: display.place.clone(), screen: Screen::new(display.place.clone()) };
    let (x, _) = display.place.display.connect().unwrap();
    let root = x.setup().roots[0].root;
    let mut client = visit(&stage, &[7]).await;
    client.say(&[5, 1, 1, 0, 0, 77]).await;
    let pressed = async {
        loop {
            let pointer = x.query_pointer(root).unwrap().reply().unwrap();
            if (pointer.root_x, pointer.root_y, u16::from(pointer.mask) & 0x100) == (256, 77, 0x100) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), pressed).await.expect("the pointer moved and its button went down");
    // A viewer that goes away lets go.
    drop(client);
    let released = async {
        while u16::from(x.query_pointer(root).unwrap().reply().unwrap().mask) & 0x100 != 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), released).await.expect("the button was released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_display_that_dies_and_comes_back_is_shown_again() {
    let mut display = TestDisplay::bare();
    let stage = OnDisplay { place: display.place.clone(), screen: Screen::new(display.place.clone()) };
    let mut client = visit(&stage, &[7]).await;
    client.request(false).await;
    client.update().await;
    client.request(true).await;
    display.kill();
    display.restart();
    let (x, _) = display.place.display.connect().unwrap();
    let root = &x.setup().roots[0];
    let gc = x.generate_id().unwrap();
    x.create_gc(gc, root.root, &CreateGCAux::new().foreground(0xcc_0011)).unwrap();
    x.poly_fill_rectangle(root.root, gc, &[Rectangle { x: 0, y: 0, width: 50, height: 50 }]).unwrap();
    x.sync().unwrap();
    while client.canvas.pixels[0] != 0xcc_0011 {
        client.update().await;
        client.request(true).await;
    }
}

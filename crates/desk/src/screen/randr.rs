//! Another size of the screen, through RandR.

use crate::error::{Error, Result};
use hotdesk_api::action::Size;
use x11rb::connection::{Connection, RequestConnection};
use x11rb::protocol::randr::{self, ConnectionExt as _, Mode, ModeInfo, SetConfig};
use x11rb::protocol::xproto::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;

/// Nothing smaller is of use, and programs fail on it.
const SMALLEST: Size = Size { width: 64, height: 64 };

/// Millimetres of an inch, times ten, and the resolution that sizes in millimetres are told for.
const TENTHS_PER_INCH: u32 = 254;
const DOTS_PER_INCH: u32 = 96;

/// Gives the root window another size. Returns when the X server has done it.
pub(crate) fn resize(connection: &RustConnection, root: u32, size: Size) -> Result<()> {
    if size.width < SMALLEST.width || size.height < SMALLEST.height {
        let Size { width, height } = SMALLEST;
        return Err(Error::Invalid(format!(
            "a screen of {}×{} is too small: the smallest is {width}×{height}",
            size.width, size.height
        )));
    }
    if connection.extension_information(randr::X11_EXTENSION_NAME)?.is_none() {
        return Err(impossible(size, "the X server has no RandR".into()));
    }
    connection.randr_query_version(1, 5)?.reply()?;
    let range = connection.randr_get_screen_size_range(root)?.reply()?;
    if size.width > range.max_width.into() || size.height > range.max_height.into() {
        let reason = format!("the X server allows at most {}×{}", range.max_width, range.max_height);
        return Err(impossible(size, reason));
    }
    // Nobody shall see, or draw into, what lies between the steps.
    connection.grab_server()?;
    let result = set_size(connection, root, size);
    connection.ungrab_server()?;
    connection.flush()?;
    result
}

fn set_size(connection: &RustConnection, root: u32, size: Size) -> Result<()> {
    let resources = connection.randr_get_screen_resources_current(root)?.reply()?;
    let mut chosen = None;
    for &output in &resources.outputs {
        let info = connection.randr_get_output_info(output, resources.config_timestamp)?.reply()?;
        if info.connection == randr::Connection::CONNECTED && !info.crtcs.is_empty() {
            chosen = Some((output, info));
            break;
        }
    }
    let Some((output, info)) = chosen else {
        return Err(impossible(size, "no output of the X server is connected".into()));
    };
    let crtc = if info.crtc == x11rb::NONE { info.crtcs[0] } else { info.crtc };
    let has_size = |m: &&ModeInfo| u32::from(m.width) == size.width && u32::from(m.height) == size.height;
    let mode = match resources.modes.iter().find(|m| info.modes.contains(&m.id) && has_size(m)) {
        Some(mode) => mode.id,
        None => add_mode(connection, root, output, size)?,
    };
    let before = connection.randr_get_crtc_info(crtc, resources.config_timestamp)?.reply()?;
    let geometry = connection.get_geometry(root)?.reply()?;
    let old = Size { width: geometry.width.into(), height: geometry.height.into() };
    let set_crtc = |mode: Mode| -> Result<bool> {
        let outputs: &[u32] = if mode == x11rb::NONE { &[] } else { &[output] };
        let (now, config) = (x11rb::CURRENT_TIME, resources.config_timestamp);
        let reply = connection.randr_set_crtc_config(crtc, now, config, 0, 0, mode, randr::Rotation::ROTATE0, outputs)?.reply();
        match reply {
            Ok(reply) => Ok(reply.status == SetConfig::SUCCESS),
            Err(x11rb::errors::ReplyError::X11Error(_)) => Ok(false),
            Err(e) => Err(e.into()),
        }
    };
    // The screen must hold what the output shows at any time, so the output is switched off in between.
    set_crtc(x11rb::NONE)?;
    if set_screen(connection, root, size)? && set_crtc(mode)? {
        return Ok(());
    }
    set_screen(connection, root, old)?;
    set_crtc(before.mode)?;
    Err(impossible(size, "the X server refused the mode".into()))
}

fn set_screen(connection: &RustConnection, root: u32, size: Size) -> Result<bool> {
    let millimetres = |pixels: u32| (pixels * TENTHS_PER_INCH / (DOTS_PER_INCH * 10)).max(1);
    let (width, height) = (size.width as u16, size.height as u16);
    let done = connection.randr_set_screen_size(root, width, height, millimetres(size.width), millimetres(size.height))?.check();
    match done {
        Ok(()) => Ok(true),
        Err(x11rb::errors::ReplyError::X11Error(_)) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Adds a mode of this size. There is no monitor, so the timings only have to be plausible: 60 Hz.
fn add_mode(connection: &RustConnection, root: u32, output: u32, size: Size) -> Result<Mode> {
    let name = format!("{}x{}", size.width, size.height);
    let (width, height) = (size.width as u16, size.height as u16);
    let (htotal, vtotal) = (width.saturating_add(160), height.saturating_add(30));
    let mode = ModeInfo {
        id: 0,
        width,
        height,
        dot_clock: u32::from(htotal).saturating_mul(vtotal.into()).saturating_mul(60),
        hsync_start: width.saturating_add(48),
        hsync_end: width.saturating_add(80),
        htotal,
        hskew: 0,
        vsync_start: height.saturating_add(3),
        vsync_end: height.saturating_add(9),
        vtotal,
        name_len: name.len() as u16,
        mode_flags: randr::ModeFlag::HSYNC_POSITIVE | randr::ModeFlag::VSYNC_POSITIVE,
    };
    let refused = |e: x11rb::errors::ReplyError| match e {
        x11rb::errors::ReplyError::X11Error(_) => impossible(size, "the X server refused a new mode".into()),
        e => e.into(),
    };
    // A mode of this name may be left over from somebody else.
    let known = connection.randr_get_screen_resources_current(root)?.reply()?;
    let mut names = known.names.as_slice();
    let mut existing = None;
    for mode in &known.modes {
        let (this, rest) = names.split_at(usize::from(mode.name_len).min(names.len()));
        if this == name.as_bytes() {
            existing = Some(mode.id);
        }
        names = rest;
    }
    let id = match existing {
        Some(id) => id,
        None => connection.randr_create_mode(root, mode, name.as_bytes())?.reply().map_err(refused)?.mode,
    };
    connection.randr_add_output_mode(output, id)?.check().map_err(refused)?;
    Ok(id)
}

fn impossible(size: Size, reason: String) -> Error {
    Error::Unsupported {
        what: format!("a screen of {}×{}", size.width, size.height),
        reason,
        hint:
            "start the desk with a larger --size (Xvfb can only shrink below its start size), or with an X server that can grow"
                .into(),
    }
}

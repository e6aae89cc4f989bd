//! The live view: an RFB (VNC) server of the desk's display.

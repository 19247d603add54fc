//! Tests of the link over real sockets on ports that the system chooses. Nothing here counts on being quick:
//! whatever is waited for has forty seconds.

mod calls;
mod hello;
mod redial;
mod rough;
mod support;

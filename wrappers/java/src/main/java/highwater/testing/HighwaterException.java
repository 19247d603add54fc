package highwater.testing;

/** The broker cannot be started, or refuses a fault rule. The message is the program's. */
public class HighwaterException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    public HighwaterException(String message) {
        super(message);
    }

    public HighwaterException(String message, Throwable cause) {
        super(message, cause);
    }
}

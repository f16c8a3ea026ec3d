def test_health_needs_no_token(api):
    assert api.get("/api/health", token=None).json() == {"status": "ok", "version": "0.1.0"}
